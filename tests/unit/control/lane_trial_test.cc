// SPDX-License-Identifier: Apache-2.0
#include "control/lane_trial.h"

#include <vector>

#include "control/allocation.h"
#include "control/lane_changes.h"
#include "control/lane_model.h"
#include "control/timer.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

class LaneTrialTest : public testing::Test {
 protected:
  static Window window_of(const std::vector<Nanos>& times) {
    Window window{20, 1 << 20, 1, {}, Timer::kOperations};
    for (const Nanos time : times) window.lanes.push_back({time, time / 100});
    return window;
  }

  // Three quarters on lane 0, a quarter on lane 1, which has become early.
  const Allocation home_ = in_proportion({3, 1});
  LaneTrial trial_{window_of({6'000'000, 2'000'000}), home_, lane_bit(1), false};
};

TEST_F(LaneTrialTest, GivesTwiceAsMuchMoreEachTime) {
  Allocation allocation = home_;
  for (const double weight : {1.5, 3.0, 6.0, 12.0}) {
    allocation = trial_.raise(allocation);
    EXPECT_NEAR(allocation[1], in_proportion({3, weight})[1], 4);  // roundings
  }
}

TEST_F(LaneTrialTest, IsWorthItWhenOperationsAreShorter) {
  EXPECT_TRUE(trial_.may_go_on(window_of({6'000'000, 2'000'000})));
  EXPECT_FALSE(trial_.may_go_on(window_of({4'000'000, 4'000'000})));
  EXPECT_FALSE(trial_.look_at(window_of({5'900'000, 3'000'000}), home_));  // by noise
  EXPECT_FALSE(trial_.was_worth_it());
  EXPECT_TRUE(trial_.look_at(window_of({5'000'000, 3'000'000}), home_));
  EXPECT_FALSE(trial_.look_at(window_of({4'000'000, 9'000'000}), home_));
  EXPECT_TRUE(trial_.was_worth_it());
}

// A little more until what may have been saved up is spent, or, where the lane is early even so,
// for one window after half of it is; nothing is concluded before.
TEST_F(LaneTrialTest, IsGentleUntilSavingsAreSpent) {
  const auto operations = [&](Nanos early) {
    LaneTrial gentle(window_of({6'000'000, 2'000'000}), home_, lane_bit(1), true);
    const Allocation more = gentle.raise(home_);
    Window window = window_of({5'000'000, early});
    window.bytes = 400'000;
    window.operations = 1;
    int count = 0;  // each spends 14,300 bytes
    for (; gentle.is_gentle(); ++count) EXPECT_FALSE(gentle.look_at(window, more));
    return count;
  };
  EXPECT_EQ(operations(3'500'000), 4);
  EXPECT_EQ(operations(3'000'000), 3);
}

TEST_F(LaneTrialTest, GoesOnBoldlyOnceSavingsAreSpent) {
  LaneTrial gentle(window_of({6'000'000, 2'000'000}), home_, lane_bit(1), true);
  const Allocation more = gentle.raise(home_);
  EXPECT_NEAR(more[1], in_proportion({3, 1.2})[1], 4);
  const Window window = window_of({5'000'000, 3'000'000});
  EXPECT_FALSE(gentle.look_at(window, more));
  EXPECT_FALSE(gentle.is_gentle());
  EXPECT_FALSE(gentle.was_worth_it());
  EXPECT_NEAR(gentle.raise(more)[1], in_proportion({3, 1.8})[1], 4);
  EXPECT_TRUE(gentle.look_at(window, more));
}

TEST_F(LaneTrialTest, GivesALaneThatIsBackWhatItHadBefore) {
  for (const double before : {0.5, 0.3, 0.97}) {
    SCOPED_TRACE(before);
    LaneTrial gentle(window_of({6'000'000, 2'000'000}), home_, lane_bit(1), true, {0.9, before});
    const Allocation more = gentle.raise(home_);
    const Window window = window_of({5'000'000, 2'000'000});
    EXPECT_FALSE(gentle.look_at(window, more));
    ASSERT_TRUE(gentle.may_go_on(window));
    const bool is_back =
        before == 0.5;  // a raise is more than the one, and the other is next to all
    EXPECT_NEAR(part_of(1, gentle.raise(more)[1]), is_back ? 0.5 : 1.8 / 4.8, 1e-5);
    EXPECT_EQ(gentle.may_go_on(window), !is_back);
    EXPECT_TRUE(gentle.look_at(window_of({4'000'000, 2'000'000}), more));
  }
}

TEST_F(LaneTrialTest, WhatALaneHadBeforeIsNoMatterUntilALittleMoreHasShownThatItIsBack) {
  LaneTrial bold(window_of({6'000'000, 2'000'000}), home_, lane_bit(1), false, {0, 0.9});
  EXPECT_NEAR(bold.raise(home_)[1], in_proportion({3, 1.5})[1], 4);
}

// What was saved up does not last for that.
TEST_F(LaneTrialTest, IsGentleNoMoreWhereALaneIsFarEarlyWithMore) {
  LaneTrial gentle(window_of({6'000'000, 2'000'000}), home_, lane_bit(1), true);
  const Allocation more = gentle.raise(home_);
  Window window = window_of({6'000'000, 2'300'000});
  window.bytes = 1000;
  EXPECT_FALSE(gentle.look_at(window, more));
  EXPECT_FALSE(gentle.is_gentle());
  EXPECT_TRUE(gentle.may_go_on(window));
  EXPECT_FALSE(gentle.was_worth_it());
}

// Beside a lane that has become slower all others are far early.
TEST_F(LaneTrialTest, IsGentleOnWhereOperationsTakeFarLonger) {
  LaneTrial gentle(window_of({6'000'000, 2'000'000}), home_, lane_bit(1), true);
  Window window = window_of({18'000'000, 2'000'000});
  window.bytes = 1000;
  EXPECT_FALSE(gentle.look_at(window, gentle.raise(home_)));
  EXPECT_TRUE(gentle.is_gentle());
  EXPECT_FALSE(gentle.may_go_on(window));
}

TEST_F(LaneTrialTest, ThePartOfTheSlowestIsThatOfTheLatest) {
  EXPECT_DOUBLE_EQ(part_of_slowest(window_of({6'000'000, 2'000'000, 0, 3'000'000}), 0b1110), 0.5);
  EXPECT_DOUBLE_EQ(part_of_slowest(window_of({6'000'000, 2'000'000, 0, 3'000'000}), 0b11), 1);
}

TEST_F(LaneTrialTest, EndsWhereALaneTookNoPart) {
  EXPECT_FALSE(trial_.may_go_on(window_of({6'000'000, 0})));
}

// Beside a lane that has become slower all others are early.
TEST_F(LaneTrialTest, EndsWhereOperationsTakeFarLongerByLittleMore) {
  LaneTrial gentle(window_of({6'000'000, 2'000'000}), home_, lane_bit(1), true);
  EXPECT_TRUE(gentle.may_go_on(window_of({6'500'000, 2'000'000})));
  EXPECT_FALSE(gentle.may_go_on(window_of({9'000'000, 2'000'000})));
}

// A bucket may last for thousands of messages of which the lane gets next to nothing.
TEST_F(LaneTrialTest, IsGentleForSomeWindowsAtMost) {
  LaneTrial gentle(window_of({6'000'000, 2'000'000}), home_, lane_bit(1), true);
  const Allocation more = gentle.raise(home_);
  Window window = window_of({6'000'000, 3'000'000});
  window.bytes = 1000;
  int windows = 0;
  for (; gentle.is_gentle() && windows < 100; ++windows) gentle.look_at(window, more);
  EXPECT_EQ(windows, 8);
}

// What an early lane took is no measure: it may have lived on what it had saved up.
TEST_F(LaneTrialTest, ConcludesNoMoreThanOperationsShow) {
  LaneModel model(2);
  model.learn(window_of({6'000'000, 6'000'000}), home_);
  const Allocation more = trial_.raise(home_);  // two thirds and one
  const auto while_early = trial_.changes(model, window_of({5'333'000, 1'000'000}), more);
  ASSERT_EQ(while_early.size(), 1U);
  EXPECT_EQ(while_early[0].lane, 1);
  EXPECT_NEAR(while_early[0].ratio, 5.333 / 8, 0.05);
  const auto at_last = trial_.changes(model, window_of({5'333'000, 5'000'000}), more);
  ASSERT_EQ(at_last.size(), 1U);
  EXPECT_NEAR(at_last[0].ratio, 5. / 8, 0.05);
}

}  // namespace
}  // namespace nezha
