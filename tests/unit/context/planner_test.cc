// SPDX-License-Identifier: Apache-2.0
#include "context/planner.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "context/split.h"
#include "gtest/gtest.h"
#include "tests/unit/context/planner_fixture.h"

namespace nezha {
namespace {

using testing::PlannedRank;

class PlannerTest : public testing::PlannerFixture {};

// ---- Without anything to learn -----------------------------------------------------------------

TEST_F(PlannerTest, WithoutABalancerStripesCarryEverything) {
  for (const ContextOptions& given :
       {options(Plan::kStripe, BalancePolicy::kModel), options(Plan::kAuto, BalancePolicy::kNone),
        options(Plan::kAuto, BalancePolicy::kModel, /*size=*/1)}) {
    PlannedRank& rank = open_one(given);
    rank.run_alone(rank.request(kElements));
    EXPECT_EQ(rank.wanted, 0);
    EXPECT_TRUE(rank.balance().lanes.empty());
    ASSERT_EQ(latest(rank).slices.size(), 1u);
    const auto& [slice, engine, schedule] = latest(rank).slices[0];
    EXPECT_EQ(slice.bounds.end - slice.bounds.begin, SliceBounds::kWhole);
    EXPECT_EQ(slice.rails, rank.roster.group().rails);
    EXPECT_EQ(engine, &rank.hosts);
    EXPECT_EQ(schedule, ScheduleKind::kRecursiveDoubling);
  }
}

TEST_F(PlannerTest, SharesDivideEachMessageAndLeaveSparesOut) {
  ContextOptions given = options(Plan::kSlice, BalancePolicy::kNone);
  given.shares = {3, 0, 1};
  PlannedRank& rank = open_one(given, {"a", "b", "c"});
  rank.run_alone(rank.request(1));  // short messages, too
  const AssignedSlices& slices = latest(rank).slices;
  ASSERT_EQ(slices.size(), 2u);
  constexpr uint32_t kCut = SliceBounds::kWhole / 4 * 3;
  EXPECT_EQ(slices[0].slice.bounds.begin, 0u);
  EXPECT_EQ(slices[0].slice.bounds.end, kCut);
  EXPECT_EQ(names(rank, slices[0].slice.rails), std::set<std::string>{"a"});
  EXPECT_EQ(slices[1].slice.bounds.begin, kCut);
  EXPECT_EQ(slices[1].slice.bounds.end, SliceBounds::kWhole);
  EXPECT_EQ(names(rank, slices[1].slice.rails), std::set<std::string>{"c"});
  EXPECT_NE(slices[0].slice.lane, slices[1].slice.lane);
}

TEST_F(PlannerTest, VectorsOfBlocksAreNotCutIntoSlices) {
  ContextOptions given = options(Plan::kSlice, BalancePolicy::kNone);
  given.shares = {1, 1};
  PlannedRank& rank = open_one(given);
  Request request = rank.request(kElements, Collective::kAllgather);
  const std::array<size_t, 2> counts{kElements / 2, kElements / 2};
  request.operation.blocks = std::make_shared<Blocks>(counts, sizeof(uint32_t));
  rank.run_alone(std::move(request));
  ASSERT_EQ(latest(rank).slices.size(), 1u);
  EXPECT_EQ(latest(rank).slices[0].slice.rails, rank.roster.group().rails);
}

// ---- What starts the balancer ------------------------------------------------------------------

TEST_F(PlannerTest, TheFirstAllreduceThatCanBeBalancedAsksForTheSetUp) {
  PlannedRank& rank = open_one(usual());
  Request own = rank.request(kElements);
  own.operation.tag = kOwnTag;
  rank.run_alone(std::move(own));
  rank.run_alone(rank.request(1));
  rank.run_alone(rank.request(kElements, Collective::kBroadcast));
  EXPECT_EQ(rank.wanted, 0);
  for (int i = 0; i < 2; ++i) {
    rank.run_alone(rank.request(kElements));
    EXPECT_EQ(rank.wanted, 1);
  }
}

TEST_F(PlannerTest, WithOneRailASizeWithTwoAlgorithmsAsksForTheSetUp) {
  const auto wanted_after = [&](size_t elements, bool is_by_size = true) {
    PlannedRank& rank = open_one(options(Plan::kAuto, BalancePolicy::kModel, /*size=*/4), {"a"});
    Request request = rank.request(elements);
    request.is_by_size = is_by_size;
    rank.run_alone(std::move(request));
    return rank.wanted;
  };
  EXPECT_EQ(wanted_after(4 << 10), 1);
  EXPECT_EQ(wanted_after(1 << 20), 0) << "there is one algorithm for that size";
  EXPECT_EQ(wanted_after(4 << 10, false), 0) << "the operation names its algorithm";
}

TEST_F(PlannerTest, ABrokenContextMeasuresNothing) {
  PlannedRank& rank = open_one(usual());
  {
    const Progress::Guard guard(rank.setup.progress());
    rank.planner.stop();
  }
  rank.run_alone(rank.request(kElements));
  EXPECT_EQ(rank.wanted, 0);
}

TEST_F(PlannerTest, OnlyOperationsThatRunAtOnceDisturbEachOther) {
  for (const BalancePolicy policy : {BalancePolicy::kModel, BalancePolicy::kShuffle}) {
    PlannedRank& rank = open_one(options(Plan::kAuto, policy));
    rank.replaces_engines = true;
    const auto start = [&] { return rank.start(rank.request(kElements)); };
    // Returns how long it took. It is the oldest operation that has started.
    const auto end = [&](const std::shared_ptr<RunningOperation>& operation) {
      const Progress::Guard guard(rank.setup.progress());
      rank.engine.tasks.front()->finish(Task::State::kDone);
      const Nanos time = operation->lane_times(1)[0];
      rank.setup.progress().run_deferred();
      return time;
    };
    EXPECT_GT(end(start()), 0);
    const auto first = start();
    const auto second = start();
    for (const auto& operation : {first, second}) {
      EXPECT_EQ(end(operation) == 0, policy == BalancePolicy::kModel);
    }
    {
      const Progress::Guard guard(rank.setup.progress());
      rank.begin(rank.request(kElements));
    }
    EXPECT_GT(end(start()), 0) << "the other one has not started";
  }
}

// ---- The table ---------------------------------------------------------------------------------

class PlannersTableTest : public PlannerTest {
 protected:
  PlannersTableTest() { std::filesystem::create_directory(folder_); }
  ~PlannersTableTest() override { std::filesystem::remove_all(folder_); }

  absl::Status load(const std::string& path) {
    ContextOptions given = usual();
    given.table = path;
    return open_one(given).planner.load_table();
  }

  const std::string folder_ = ::testing::TempDir() + "/planner_test." + std::to_string(getpid());
};

TEST_F(PlannersTableTest, ATableThatCannotBeUsedIsAnErrorAtOnce) {
  EXPECT_TRUE(load("").ok());
  EXPECT_TRUE(load(folder_ + "/new").ok());
  const absl::Status lost = load(folder_ + "/none/new");
  EXPECT_TRUE(absl::IsInvalidArgument(lost));
  EXPECT_NE(lost.message().find(folder_ + "/none/new"), absl::string_view::npos) << lost;
  std::ofstream(folder_ + "/other") << "something else\n";
  const absl::Status other = load(folder_ + "/other");
  EXPECT_TRUE(absl::IsInvalidArgument(other));
  EXPECT_NE(other.message().find("; remove it, or name another file"), absl::string_view::npos);
}

TEST_F(PlannersTableTest, WhatRank0HasLearnedIsWhereTheNextRunBegins) {
  const std::string path = folder_ + "/table";
  ContextOptions given = options(Plan::kAuto, BalancePolicy::kShuffle);
  given.table = path;
  const auto windows = [&] {
    const BalanceStats balance = ranks_[0]->balance();
    return balance.classes.empty() ? 0 : balance.classes[0].windows;
  };
  open_all(given);
  run_until([&] { return windows() >= 20; });
  for (const int rank : {1, 0}) {
    EXPECT_FALSE(std::filesystem::exists(path));
    ranks_[static_cast<size_t>(rank)]->leave();
    ranks_[static_cast<size_t>(rank)]->planner.save();
  }
  EXPECT_TRUE(std::filesystem::exists(path));
  open_all(given);
  run_until([&] { return windows() > 0; });
  EXPECT_GE(windows(), 20u);
}

// ---- Several ranks -----------------------------------------------------------------------------

TEST_F(PlannerTest, AllRanksDivideEachAllreduceAlike) {
  open_all(options(Plan::kAuto, BalancePolicy::kShuffle, /*size=*/3));
  run_until([&] {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
      const BalanceStats balance = rank->balance();
      return !balance.classes.empty() && balance.classes[0].number >= 10;
    });
  });
  expect_sums();
  for (const auto& [ordinal, way] : ranks_[0]->ways) {
    for (const auto& rank : ranks_) {
      const PlannedRank::Way& its = rank->ways.at(ordinal);
      EXPECT_EQ(its.plan, way.plan);
      ASSERT_EQ(its.slices.size(), way.slices.size());
      uint32_t end = 0;
      for (size_t i = 0; i < its.slices.size(); ++i) {
        const Slice& slice = its.slices[i].slice;
        const Slice& first = way.slices[i].slice;
        EXPECT_EQ(slice.lane, first.lane);
        EXPECT_EQ(slice.bounds.begin, end);
        EXPECT_EQ(slice.bounds.end, first.bounds.end);
        EXPECT_EQ(names(*rank, slice.rails), names(*ranks_[0], first.rails));
        end = slice.bounds.end;
      }
      EXPECT_EQ(end, SliceBounds::kWhole);
    }
  }
}

TEST_F(PlannerTest, ARailThatDoesNotComeUpIsLeftOut) {
  records_->unreachable = "b";
  ContextOptions given = options(Plan::kSlice, BalancePolicy::kShuffle);
  given.shares = {1, 1};
  open_all(given);
  int without = 0;  // so many operations in a row have not used it, which would not be by chance
  run_until([&] {
    if (ranks_[1]->ways.empty()) return false;
    RailMask rails = 0;
    for (const AssignedSlice& it : latest(*ranks_[1]).slices) rails |= it.slice.rails;
    without = names(*ranks_[1], rails) == std::set<std::string>{"a"} ? without + 1 : 0;
    return without == 100;
  });
  expect_sums();
}

TEST_F(PlannerTest, OnlyRank0SaysHowTheBalancerCameToItsShares) {
  open_all(options(Plan::kAuto, BalancePolicy::kShuffle));
  run_until([&] { return !ranks_[1]->balance().classes.empty(); });
  for (const int rank : {0, 1}) {
    const BalanceStats balance = ranks_[static_cast<size_t>(rank)]->balance();
    EXPECT_EQ(balance.lanes, (std::vector<std::string>{"a", "b", "stripes"}));
    ASSERT_EQ(balance.classes.size(), 1u);
    const SizeClassStats& known = balance.classes[0];
    EXPECT_EQ(known.least_bytes, kElements * sizeof(uint32_t));
    EXPECT_NEAR(known.shares[0] + known.shares[1] + known.shares[2], 1, 1e-6);
    EXPECT_EQ(known.state.empty(), rank != 0);
    EXPECT_EQ(known.history.empty(), rank != 0);
  }
}

}  // namespace
}  // namespace nezha
