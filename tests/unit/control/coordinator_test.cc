// SPDX-License-Identifier: Apache-2.0
#include "control/coordinator.h"

#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/control/simulated_networks.h"

namespace nezha {
namespace {

using control_message::Commit;
using control_message::Freeze;
using control_message::Message;
using control_message::Prepare;
using control_message::Recover;

constexpr SizeClass kClass = 20;  // the class of kMiB

// After each window, gives the first lane the part that the test has set.
class ScriptedPolicy final : public Policy {
 public:
  using Policy::Policy;

  Allocation open(SizeClass /*size_class*/) override { return equal_parts(live(), lanes()); }
  void resume(const Window& /*last*/, const Way& /*ran_by*/, ClassState /*state*/) override {}
  std::optional<Decision> on_window(const Window& window, const Allocation& ran_by) override {
    windows.push_back(window);
    if (next == 0) return std::nullopt;
    EXPECT_EQ(ran_by.size(), 2u);
    return Decision{{next, SliceBounds::kWhole - next}, Cause::kRebalance};
  }
  Allocation on_lanes(SizeClass /*size_class*/, const Allocation& current) override {
    lane_calls.push_back(live());
    return (lanes_of(current) & ~live()) == 0 ? current : equal_parts(live(), lanes());
  }
  ClassState state(SizeClass /*size_class*/) const override { return ClassState::kHot; }
  int window_operations(SizeClass /*size_class*/) const override { return operations; }

  uint32_t next = 0;  // the first lane's part; 0: the allocation stays
  int operations = 1;
  std::vector<Window> windows;
  std::vector<LaneSet> lane_calls;
};

class CoordinatorTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  CoordinatorTest() {
    auto policy = std::make_unique<ScriptedPolicy>(2);
    policy_ = policy.get();
    coordinator_ =
        std::make_unique<Coordinator>(kRanks, LoadBalancer({"a", "b"}, std::move(policy)),
                                      [this](const Message& message) { sent_.push_back(message); });
  }

  // Returns the only message that was sent since the last call.
  template <typename Kind>
  Kind sent() {
    EXPECT_EQ(sent_.size(), 1u);
    const std::vector<Message> messages = std::exchange(sent_, {});
    const Kind* only = messages.empty() ? nullptr : std::get_if<Kind>(&messages.back());
    EXPECT_NE(only, nullptr);
    return only == nullptr ? Kind{} : *only;
  }
  absl::Status report(int rank, uint32_t plan, std::vector<OperationId> operations = {}) {
    return coordinator_->on_report(rank, {plan, std::move(operations)});
  }
  Commit all_report(uint32_t plan) {
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(report(rank, plan).ok());
    return sent<Commit>();
  }
  // Opens the class and has all ranks agree on its first allocation.
  void open() {
    coordinator_->saw(kMiB);
    all_report(sent<Prepare>().plan);
  }
  Reading reading(uint64_t ordinal, LaneTimes lanes, uint32_t allocation = 1) {
    return {{5, ordinal}, kMiB, allocation, std::move(lanes)};
  }
  void all_read(uint64_t ordinal, const LaneTimes& lanes, uint32_t allocation = 1) {
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(coordinator_->on_readings(rank, {reading(ordinal, lanes, allocation)}).ok());
    }
  }

  ScriptedPolicy* policy_ = nullptr;
  std::vector<Message> sent_;
  std::unique_ptr<Coordinator> coordinator_;
};

// ---- Steps -------------------------------------------------------------------------------------

TEST_F(CoordinatorTest, AStepIsAskedForThenReportedThenCommitted) {
  EXPECT_FALSE(coordinator_->is_stepping());
  coordinator_->saw(kMiB);
  EXPECT_EQ(sent<Prepare>().plan, 1u);
  EXPECT_TRUE(coordinator_->is_stepping());
  EXPECT_EQ(coordinator_->missing(), (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(report(1, 1, {{1, 1}}).ok());
  EXPECT_TRUE(report(0, 1, {{1, 1}, {2, 5}}).ok());
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(coordinator_->missing(), (std::vector<int>{2}));
  EXPECT_TRUE(report(2, 1).ok());
  const auto commit = sent<Commit>();
  EXPECT_EQ(commit.plan, 1u);
  EXPECT_EQ(commit.keep.size(), 2u);
  ASSERT_EQ(commit.changes.size(), 1u);
  EXPECT_EQ(commit.changes[0].size_class, kClass);
  EXPECT_EQ(commit.changes[0].number, 1u);
  EXPECT_EQ(commit.changes[0].allocation, equal_parts(3, 2));
  EXPECT_FALSE(coordinator_->is_stepping());
}

TEST_F(CoordinatorTest, WhatIsKnownAlreadyNeedsNoStep) {
  open();
  coordinator_->saw(kMiB);
  coordinator_->saw(kMiB + 5);
  EXPECT_TRUE(sent_.empty());
  all_read(1, {100, 200});
  EXPECT_EQ(policy_->windows.size(), 1u);
  EXPECT_TRUE(sent_.empty()) << "the policy keeps the allocation";
}

// Only a sample of short operations is reported.
TEST_F(CoordinatorTest, AWindowKnowsHowManyOperationsThereWereSinceTheLast) {
  open();
  for (int i = 0; i < 79; ++i) coordinator_->saw(kMiB);
  coordinator_->saw(4 * kMiB);
  all_read(1, {100, 200});
  for (int i = 0; i < 3; ++i) coordinator_->saw(kMiB);
  all_read(2, {100, 200});
  all_read(3, {100, 200});
  ASSERT_EQ(policy_->windows.size(), 3u);
  EXPECT_EQ(policy_->windows[2].since_last, 0u) << "the window before had them all";
  EXPECT_EQ(policy_->windows[0].operations, 1);
  EXPECT_EQ(policy_->windows[0].since_last, 80u);
  EXPECT_EQ(policy_->windows[1].since_last, 3u);
}

TEST_F(CoordinatorTest, OneStepAtATimeAndItsCommitHasWhatCameMeanwhile) {
  coordinator_->saw(kMiB);
  EXPECT_EQ(sent<Prepare>().plan, 1u);
  EXPECT_TRUE(report(0, 1).ok());
  coordinator_->saw(4 * kMiB);
  coordinator_->saw(16 * kMiB);
  EXPECT_TRUE(sent_.empty()) << "one step at a time";
  EXPECT_TRUE(report(1, 1).ok());
  EXPECT_TRUE(report(2, 1).ok());
  const auto commit = sent<Commit>();
  ASSERT_EQ(commit.changes.size(), 3u);
  EXPECT_EQ(commit.changes[2].size_class, kClass + 4);
  coordinator_->saw(64 * kMiB);
  EXPECT_EQ(sent<Prepare>().plan, 2u);
  EXPECT_EQ(all_report(2).changes.size(), 1u) << "each change is told once";
}

TEST_F(CoordinatorTest, TheLatestChangeOfEachClassIsCommitted) {
  open();
  policy_->next = 1000;
  all_read(1, {100, 200});
  EXPECT_EQ(sent<Prepare>().plan, 2u);
  policy_->next = 3000;
  all_read(2, {100, 200}, 2);  // allocation 2 is not agreed on: none has run by it
  coordinator_->saw(4 * kMiB);
  const auto commit = all_report(2);
  ASSERT_EQ(commit.changes.size(), 2u);
  EXPECT_EQ(commit.changes[0].size_class, kClass);
  EXPECT_EQ(commit.changes[0].number, 3u);
  EXPECT_EQ(commit.changes[0].allocation, (Allocation{3000, SliceBounds::kWhole - 3000}));
  EXPECT_EQ(commit.changes[1].size_class, kClass + 2);
}

TEST_F(CoordinatorTest, WindowsAreAsLongAsThePolicyWants) {
  policy_->operations = 3;
  open();
  policy_->operations = 2;
  for (uint64_t ordinal = 1; ordinal <= 3; ++ordinal) {
    EXPECT_TRUE(policy_->windows.empty());
    all_read(ordinal, {100, 200});
  }
  ASSERT_EQ(policy_->windows.size(), 1u);
  EXPECT_EQ(policy_->windows[0].operations, 3);
  all_read(4, {100, 200});
  all_read(5, {100, 200});
  ASSERT_EQ(policy_->windows.size(), 2u) << "the policy wants two since the last window";
}

// ---- Lanes -------------------------------------------------------------------------------------

TEST_F(CoordinatorTest, ALaneIsLiveThatWorksOnEveryRank) {
  open();
  EXPECT_TRUE(coordinator_->on_lanes(1, 0b01).ok());
  EXPECT_EQ(policy_->lane_calls, (std::vector<LaneSet>{0b01}));
  const Commit commit = all_report(sent<Prepare>().plan);
  ASSERT_EQ(commit.changes.size(), 1u);
  EXPECT_EQ(commit.changes[0].allocation, all_on(0, 2));
  EXPECT_TRUE(coordinator_->on_lanes(2, 0b01).ok());
  EXPECT_TRUE(coordinator_->on_lanes(1, 0b11).ok());
  EXPECT_EQ(policy_->lane_calls.size(), 1u) << "rank 2's lane is still down";
  EXPECT_TRUE(coordinator_->on_lanes(2, 0b11).ok());
  EXPECT_EQ(policy_->lane_calls, (std::vector<LaneSet>{0b01, 0b11}));
}

TEST_F(CoordinatorTest, WithoutALaneThatWorksEverywhereAllStaysAsItIs) {
  open();
  EXPECT_TRUE(coordinator_->on_lanes(1, 0b01).ok());
  all_report(sent<Prepare>().plan);
  EXPECT_TRUE(coordinator_->on_lanes(2, 0b10).ok());
  EXPECT_TRUE(coordinator_->on_lanes(0, 0).ok());
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(policy_->lane_calls.size(), 1u);
  // Only rank 2 still says that lane 0 is down.
  EXPECT_TRUE(coordinator_->on_lanes(0, 0b11).ok());
  EXPECT_TRUE(coordinator_->on_lanes(1, 0b11).ok());
  EXPECT_EQ(policy_->lane_calls, (std::vector<LaneSet>{0b01, 0b10}));
}

TEST_F(CoordinatorTest, PlansLeaveOutEnginesThatAreDownSomewhereOrLost) {
  coordinator_->saw(kMiB);
  EXPECT_EQ(all_report(sent<Prepare>().plan).engines, 0b11u);
  EXPECT_TRUE(coordinator_->on_lanes(2, 0b01).ok());
  EXPECT_EQ(all_report(sent<Prepare>().plan).engines, 0b01u);
  EXPECT_TRUE(coordinator_->on_lost(0).ok());
  EXPECT_EQ(sent<Freeze>().lane, 0);
  coordinator_->saw(64 * kMiB);
  EXPECT_EQ(all_report(sent<Prepare>().plan).engines, 0u);
}

TEST_F(CoordinatorTest, TheNextLossIsAnsweredWhenTheOneBeforeIsOver) {
  EXPECT_TRUE(coordinator_->on_lost(1).ok());
  EXPECT_EQ(sent<Freeze>().lane, 1);
  EXPECT_TRUE(coordinator_->on_lost(0).ok());
  EXPECT_TRUE(sent_.empty());
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(coordinator_->on_frozen(rank, {1, {}}).ok());
  }
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_NE(std::get_if<Recover>(&sent_.front()), nullptr);
  const Freeze* freeze = std::get_if<Freeze>(&sent_.back());
  ASSERT_NE(freeze, nullptr);
  EXPECT_EQ(freeze->lane, 0);
  EXPECT_EQ(freeze->epoch, 2u);
}

// ---- A rank that is gone -----------------------------------------------------------------------

TEST_F(CoordinatorTest, AStepEndsWithoutTheRankThatIsLostAndNoneBegins) {
  coordinator_->saw(kMiB);
  EXPECT_EQ(sent<Prepare>().plan, 1u);
  EXPECT_TRUE(report(0, 1, {{1, 1}}).ok());
  coordinator_->lose(1);
  EXPECT_TRUE(sent_.empty()) << "rank 2 is there";
  coordinator_->lose(1);
  EXPECT_TRUE(sent_.empty()) << "it is lost once";
  EXPECT_EQ(coordinator_->missing(), (std::vector<int>{2}));
  EXPECT_TRUE(report(2, 1, {{2, 2}}).ok());
  EXPECT_EQ(sent<Commit>().keep.size(), 2u);
  coordinator_->saw(64 * kMiB);
  EXPECT_TRUE(coordinator_->on_lanes(0, 0b01).ok());
  EXPECT_TRUE(sent_.empty());
  EXPECT_FALSE(coordinator_->is_stepping());
}

TEST_F(CoordinatorTest, TheLastRankThatIsMissingMayBeLost) {
  coordinator_->saw(kMiB);
  EXPECT_EQ(sent<Prepare>().plan, 1u);
  EXPECT_TRUE(report(0, 1).ok());
  EXPECT_TRUE(report(1, 1, {{3, 3}}).ok());
  coordinator_->lose(2);
  EXPECT_EQ(sent<Commit>().keep, (std::vector<OperationId>{{3, 3}}));
}

TEST_F(CoordinatorTest, ARankThatHasReportedMayBeLost) {
  coordinator_->saw(kMiB);
  EXPECT_EQ(sent<Prepare>().plan, 1u);
  EXPECT_TRUE(report(2, 1, {{3, 3}}).ok());
  coordinator_->lose(2);
  EXPECT_EQ(coordinator_->missing(), (std::vector<int>{0, 1}));
  EXPECT_TRUE(report(0, 1).ok());
  EXPECT_TRUE(report(1, 1).ok());
  EXPECT_EQ(sent<Commit>().keep, (std::vector<OperationId>{{3, 3}}));
}

// ---- Invalid messages --------------------------------------------------------------------------

TEST_F(CoordinatorTest, RefusesReportsThatWereNotAskedFor) {
  EXPECT_FALSE(report(1, 0).ok());
  EXPECT_FALSE(report(1, 1).ok()) << "no step is under way";
  coordinator_->saw(kMiB);
  EXPECT_EQ(sent<Prepare>().plan, 1u);
  EXPECT_FALSE(report(1, 2).ok());
  EXPECT_FALSE(report(1, 0).ok());
  EXPECT_TRUE(report(1, 1).ok());
  EXPECT_FALSE(report(1, 1).ok()) << "twice";
  EXPECT_EQ(coordinator_->missing(), (std::vector<int>{0, 2}));
}

TEST_F(CoordinatorTest, RefusesReadingsThatContradictEachOther) {
  open();
  EXPECT_TRUE(coordinator_->on_readings(0, {reading(1, {100, 200})}).ok());
  EXPECT_FALSE(coordinator_->on_readings(0, {reading(1, {100, 200})}).ok()) << "twice";
  EXPECT_FALSE(coordinator_->on_readings(1, {reading(1, {100, 200}, 2)}).ok());
  EXPECT_FALSE(coordinator_->on_readings(1, {reading(1, {100, 0})}).ok());
  EXPECT_FALSE(coordinator_->on_readings(1, {reading(1, {100, 200, 300})}).ok());
  EXPECT_FALSE(coordinator_->on_readings(1, {reading(1, {100, -1})}).ok());
}

// On a rank where operations overlapped, their times include each other. On other ranks the
// operations may have run one after the other.
TEST_F(CoordinatorTest, AnOperationDoesNotCountIfARankHasNoTimesOfIt) {
  open();
  const auto read = [&](int rank, uint64_t ordinal, LaneTimes lanes) {
    const absl::Status status =
        coordinator_->on_readings(rank, {reading(ordinal, std::move(lanes))});
    EXPECT_TRUE(status.ok()) << status;
  };
  for (int silent = 0; silent < kRanks; ++silent) {
    const uint64_t ordinal = static_cast<uint64_t>(silent) + 1;
    for (int rank = 0; rank < kRanks; ++rank) {
      read(rank, ordinal, rank == silent ? LaneTimes{0, 0} : LaneTimes{100, 200});
    }
  }
  EXPECT_TRUE(policy_->windows.empty());
  all_read(10, {100, 200});
  EXPECT_EQ(policy_->windows.size(), 1u);
}

// ---- Going on ----------------------------------------------------------------------------------

TEST_F(CoordinatorTest, GoesOnFromATableOfTheSameLanes) {
  DataLengthTable table;
  table.lanes = {"a", "b"};
  for (const SizeClass size_class : {SizeClass{14}, kClass}) {
    TableEntry& entry = table.entries[size_class];
    entry.allocation = entry.ran_by = {SliceBounds::kWhole / 4, SliceBounds::kWhole / 4 * 3};
    entry.number = 17;
    entry.windows = 4;
    entry.bytes = uint64_t{1} << size_class;
    entry.times = {10, 20};
  }
  ASSERT_TRUE(coordinator_->resume(table).ok());
  const Commit commit = all_report(sent<Prepare>().plan);
  ASSERT_EQ(commit.changes.size(), 2u);
  for (const AllocationChange& change : commit.changes) {
    EXPECT_EQ(change.number, 1u);
    EXPECT_EQ(change.allocation, table.entries[kClass].allocation);
  }
  coordinator_->saw(kMiB);
  EXPECT_TRUE(sent_.empty()) << "its class is open";
}

TEST_F(CoordinatorTest, DoesNotGoOnFromATableOfOtherLanes) {
  DataLengthTable table;
  table.lanes = {"a", "c"};
  EXPECT_FALSE(coordinator_->resume(table).ok());
  EXPECT_TRUE(sent_.empty());
  EXPECT_TRUE(coordinator_->table().entries.empty());
}

}  // namespace
}  // namespace nezha
