// SPDX-License-Identifier: Apache-2.0
#include "control/recovery.h"

#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

constexpr OperationId kFirst{1, 1};
constexpr OperationId kSecond{1, 2};

std::vector<std::vector<size_t>> plain(const std::vector<Repair::Piece>& pieces) {
  std::vector<std::vector<size_t>> all;
  all.reserve(pieces.size());
  for (const auto& [range, source] : pieces) {
    all.push_back({range.offset, range.length, static_cast<size_t>(source)});
  }
  return all;
}

// The answer to the reports of all ranks of one epoch.
std::vector<Repair> answer(RecoveryCoordinator& coordinator,
                           const std::vector<std::vector<FrozenPart>>& reports) {
  std::vector<Repair> repairs;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const auto made =
        coordinator.report(static_cast<int>(rank), coordinator.epoch(), reports[rank]);
    EXPECT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->has_value(), rank + 1 == reports.size());
    if (made->has_value()) repairs = **made;
  }
  return repairs;
}

TEST(Recovery, AnOperationThatNobodyHasIsRepeatedAsAWhole) {
  RecoveryCoordinator coordinator(3);
  ASSERT_TRUE(coordinator.lose(1));
  // The last rank has started neither operation.
  const auto repairs =
      answer(coordinator,
             {{{kFirst, {}, {{0, 8}}}, {kSecond, {}, {{0, 8}}}}, {{kSecond, {}, {{0, 8}}}}, {}});
  ASSERT_EQ(repairs.size(), 2u);
  EXPECT_EQ(repairs[0].operation, kFirst);
  EXPECT_TRUE(repairs[0].pieces.empty());
  EXPECT_EQ(repairs[1].operation, kSecond);
  EXPECT_TRUE(repairs[1].pieces.empty());
}

TEST(Recovery, APieceComesFromARankThatHasIt) {
  RecoveryCoordinator coordinator(3);
  ASSERT_TRUE(coordinator.lose(0));
  // The last rank has returned, and its engine retains a part.
  const auto repairs = answer(coordinator, {{{kFirst, {{0, 10}}, {{10, 30}}}},
                                            {{kFirst, {{0, 4}, {20, 4}}, {{4, 16}, {24, 16}}}},
                                            {{kFirst, {{30, 10}}, {}}}});
  ASSERT_EQ(repairs.size(), 1u);
  constexpr auto kNobody = static_cast<size_t>(Repair::kNobody);
  EXPECT_EQ(plain(repairs[0].pieces),
            (std::vector<std::vector<size_t>>{
                {4, 6, 0}, {10, 10, kNobody}, {20, 4, 1}, {24, 6, kNobody}, {30, 10, 2}}));
}

TEST(Recovery, NothingIsRepairedIfAllHaveTheResult) {
  RecoveryCoordinator coordinator(2);
  ASSERT_TRUE(coordinator.lose(0));
  EXPECT_TRUE(answer(coordinator, {{{kFirst, {{0, 10}}, {}}}, {{kFirst, {{5, 5}}, {}}}}).empty());
}

// Each missing byte comes once, from a rank that has it, or from none if none has.
TEST(Recovery, EachByteComesOnce) {
  std::mt19937 random(1);
  constexpr size_t kBytes = 24;
  constexpr size_t kRanks = 4;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::vector<FrozenPart>> reports(kRanks);
    std::vector<std::vector<bool>> has(kRanks, std::vector<bool>(kBytes));
    bool anything = false;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      FrozenPart part{kFirst, {}, {}};
      for (size_t i = 0; i < kBytes; ++i) {
        has[rank][i] = random() % 3 == 0;
        anything |= has[rank][i];
        add(has[rank][i] ? part.final : part.missing, {i, 1});
      }
      reports[rank].push_back(part);
    }
    RecoveryCoordinator coordinator(kRanks);
    ASSERT_TRUE(coordinator.lose(0));
    const auto repairs = answer(coordinator, reports);
    ASSERT_TRUE(anything);
    ASSERT_EQ(repairs.size(), 1u);
    std::vector<int> times(kBytes);
    for (const auto& [range, source] : repairs[0].pieces) {
      for (size_t i = range.offset; i < range.offset + range.length; ++i) {
        ++times[i];
        for (size_t rank = 0; rank < kRanks; ++rank) {
          ASSERT_FALSE(source == Repair::kNobody && has[rank][i]);
        }
        ASSERT_TRUE(source == Repair::kNobody || has[static_cast<size_t>(source)][i]);
      }
    }
    for (size_t i = 0; i < kBytes; ++i) {
      bool all = true;
      for (size_t rank = 0; rank < kRanks; ++rank) all = all && has[rank][i];
      ASSERT_EQ(times[i], all ? 0 : 1);
    }
  }
}

TEST(Recovery, LossesAreAnsweredOneAfterTheOther) {
  RecoveryCoordinator coordinator(2);
  EXPECT_TRUE(coordinator.missing().empty());
  EXPECT_TRUE(coordinator.lose(3));
  EXPECT_FALSE(coordinator.lose(3)) << "known";
  EXPECT_FALSE(coordinator.lose(1)) << "it waits";
  EXPECT_FALSE(coordinator.next());
  EXPECT_EQ(coordinator.lane(), 3);
  EXPECT_EQ(coordinator.epoch(), 1u);
  EXPECT_EQ(coordinator.missing(), (std::vector<int>{0, 1}));
  answer(coordinator, {{}, {}});
  EXPECT_FALSE(coordinator.is_lost(3));
  EXPECT_TRUE(coordinator.is_lost(1));
  EXPECT_TRUE(coordinator.next());
  EXPECT_EQ(coordinator.lane(), 1);
  EXPECT_EQ(coordinator.epoch(), 2u);
  answer(coordinator, {{}, {}});
  EXPECT_FALSE(coordinator.next());
  EXPECT_TRUE(coordinator.lose(3)) << "again";
}

TEST(Recovery, ReportsThatWereNotAskedForAreErrors) {
  RecoveryCoordinator coordinator(2);
  EXPECT_FALSE(coordinator.report(0, 0, {}).ok());
  ASSERT_TRUE(coordinator.lose(0));
  EXPECT_FALSE(coordinator.report(0, 2, {}).ok());
  EXPECT_FALSE(coordinator.report(2, 1, {}).ok());
  EXPECT_FALSE(coordinator.report(-1, 1, {}).ok());
  EXPECT_TRUE(coordinator.report(1, 1, {}).ok());
  EXPECT_FALSE(coordinator.report(1, 1, {}).ok());
  EXPECT_EQ(coordinator.missing(), (std::vector<int>{0}));
}

}  // namespace
}  // namespace nezha
