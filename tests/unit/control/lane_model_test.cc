// SPDX-License-Identifier: Apache-2.0
#include "control/lane_model.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

// Three lanes, and messages of 1 MiB in class 20. Times are milliseconds.
class LaneModelTest : public testing::Test {
 protected:
  static constexpr int kThree = 3;
  static constexpr SizeClass kSize = 20;

  static double bytes_of(SizeClass size_class) { return std::ldexp(1.0, size_class); }
  static Window window(SizeClass size_class, const std::vector<double>& times,
                       int operations = Timer::kOperations) {
    Window window{size_class, uint64_t{1} << size_class, 1, {}, operations};
    for (const double time : times) window.lanes.push_back({std::llround(time * 1e6), 0});
    return window;
  }
  void learn(SizeClass size_class, const Allocation& by, const std::vector<double>& times,
             int windows = 1) {
    for (int i = 0; i < windows; ++i) model_.learn(window(size_class, times), by);
  }
  // Learns from windows of lanes that must not be early.
  void learn_warily(const Allocation& by, const std::vector<double>& times, int windows) {
    for (int i = 0; i < windows; ++i) model_.learn(window(kSize, times), by, false);
  }

  double time(SizeClass size_class, const Allocation& by) const {
    return model_.predict(size_class, bytes_of(size_class), by).value().time / 1e6;
  }
  // Returns what `lane` takes for a part of a message beside the other lanes of `set`.
  double time_of(int lane, LaneSet set, double part, SizeClass size_class = kSize) const {
    return model_.line(size_class, set, lane).value().at(part * bytes_of(size_class)) / 1e6;
  }

  const Allocation first_ = all_on(0, kThree);
  const Allocation second_ = all_on(1, kThree);
  const Allocation halves_ = equal_parts(0b011, kThree);
  const Allocation thirds_ = equal_parts(0b111, kThree);
  LaneModel model_{kThree};
};

TEST_F(LaneModelTest, KnowsNothingAtFirst) {
  EXPECT_FALSE(model_.has_measured(kSize, 0b001));
  EXPECT_FALSE(model_.line(kSize, 0b001, 0));
  EXPECT_FALSE(model_.predict(kSize, 1e6, first_));
  EXPECT_FALSE(model_.finish_together(kSize, 1e6, 0b011));
}

TEST_F(LaneModelTest, PredictsWhatItHasMeasured) {
  learn(kSize, halves_, {4, 6, 0});
  EXPECT_TRUE(model_.has_measured(kSize, 0b011));
  EXPECT_NEAR(time_of(0, 0b011, 0.5), 4, 0.01);
  EXPECT_NEAR(time_of(1, 0b011, 0.5), 6, 0.01);
  const Split split = model_.predict(kSize, bytes_of(kSize), halves_).value();
  EXPECT_EQ(split.set, 0b011);
  EXPECT_EQ(split.allocation, halves_);
  EXPECT_NEAR(split.time / 1e6, 6, 0.01) << "the slowest lane's time";
}

TEST_F(LaneModelTest, PredictsNothingIfOneLaneIsUnknown) {
  learn(kSize, first_, {8, 0, 0});
  EXPECT_FALSE(model_.has_measured(kSize, 0b011));
  EXPECT_FALSE(model_.line(kSize, 0b011, 1));
  EXPECT_FALSE(model_.predict(kSize, bytes_of(kSize), halves_));
  EXPECT_FALSE(model_.finish_together(kSize, bytes_of(kSize), 0b011));
}

TEST_F(LaneModelTest, LearnsFromTimesThatTheClockCouldNotSee) {
  learn(kSize, halves_, {0, 0, 0});
  const double predicted = time(kSize, halves_);
  EXPECT_TRUE(std::isfinite(predicted));
  EXPECT_GT(predicted, 0);
  EXPECT_TRUE(model_.finish_together(kSize, bytes_of(kSize), 0b011));
}

// ---- Many windows ------------------------------------------------------------------------------

TEST_F(LaneModelTest, FollowsTheLatestWindows) {
  learn(kSize, halves_, {4, 4, 0}, 30);
  learn(kSize, halves_, {6, 4, 0}, 30);
  EXPECT_NEAR(time_of(0, 0b011, 0.5), 6, 0.05);
  EXPECT_NEAR(time_of(1, 0b011, 0.5), 4, 0.05);
}

TEST_F(LaneModelTest, OneStallCountsForLittle) {
  learn(kSize, first_, {8, 0, 0}, 8);
  learn(kSize, first_, {40, 0, 0});
  EXPECT_NEAR(time(kSize, first_), 8, 1);
}

TEST_F(LaneModelTest, KnowsMoreFromMoreOperations) {
  const auto error = [this] { return model_.predict(kSize, bytes_of(kSize), first_)->error; };
  model_.learn(window(kSize, {8, 0, 0}, 3), first_);
  const double few = error();
  model_ = LaneModel(kThree);
  learn(kSize, first_, {8, 0, 0});
  const double more = error();
  learn(kSize, first_, {8, 0, 0}, 8);
  EXPECT_LT(more, few);
  EXPECT_LT(error(), more);
}

TEST_F(LaneModelTest, TheErrorIsThatOfTheLaneOfWhichItKnowsLeast) {
  Window vague = window(kSize, {4, 4, 0});
  vague.lanes[1].error = 2'000'000;
  model_.learn(vague, halves_);
  EXPECT_NEAR(model_.predict(kSize, bytes_of(kSize), halves_)->error, 0.5, 0.01);
  EXPECT_NEAR(model_.finish_together(kSize, bytes_of(kSize), 0b011)->error, 0.5, 0.01);
  EXPECT_LT(model_.line(kSize, 0b011, 0)->error, 0.1);
}

TEST_F(LaneModelTest, NoiseIsWhatWindowsDeviateBy) {
  learn(kSize, first_, {8, 0, 0}, 10);
  const double quiet = model_.noise(kSize);
  for (int i = 0; i < 30; ++i) learn(kSize, first_, {i % 2 == 0 ? 7.0 : 9.0, 0, 0});
  const double loud = model_.noise(kSize);
  EXPECT_GT(loud, 2 * quiet);
  EXPECT_LT(loud, 0.25);
  learn(kSize, first_, {8, 0, 0}, 60);
  EXPECT_LT(model_.noise(kSize), loud / 2);
}

TEST_F(LaneModelTest, OneStallIsLittleNoise) {
  learn(kSize, first_, {8, 0, 0}, 10);
  learn(kSize, first_, {800, 0, 0});
  EXPECT_LT(model_.noise(kSize), 0.1);
}

// ---- Lanes that finish early -------------------------------------------------------------------

TEST_F(LaneModelTest, ALaneCountsMostWhereItIsTheLast) {
  for (int i = 0; i < 6; ++i) {
    learn(kSize, halves_, {4, 4, 0});
    learn(kSize, halves_, {2, 4, 0});
  }
  EXPECT_NEAR(time_of(0, 0b011, 0.5), 4, 0.2);
}

TEST_F(LaneModelTest, AnEarlyLaneIsFasterOnlyIfItMayBe) {
  learn(kSize, halves_, {4, 4, 0}, 5);
  learn_warily(halves_, {2, 4, 0}, 30);
  EXPECT_NEAR(time_of(0, 0b011, 0.5), 4, 0.05) << "it may have saved up tokens";
  learn(kSize, halves_, {2, 4, 0}, 30);
  EXPECT_NEAR(time_of(0, 0b011, 0.5), 2, 0.05);
}

TEST_F(LaneModelTest, ALaneIsSlowerEvenIfItIsEarlyAndMustNotBe) {
  learn(kSize, halves_, {4, 4, 0}, 5);
  learn_warily(halves_, {5, 8, 0}, 30);
  EXPECT_NEAR(time_of(0, 0b011, 0.5), 5, 0.05);
  EXPECT_NEAR(time_of(1, 0b011, 0.5), 8, 0.05);
}

TEST_F(LaneModelTest, TheLastLaneIsFasterEvenIfLanesMustNotBeEarly) {
  learn(kSize, halves_, {4, 4, 0}, 5);
  learn_warily(halves_, {3, 3, 0}, 30);
  EXPECT_NEAR(time_of(0, 0b011, 0.5), 3, 0.05);
  EXPECT_NEAR(time_of(1, 0b011, 0.5), 3, 0.05);
}

// ---- Other sets and classes --------------------------------------------------------------------

TEST_F(LaneModelTest, ASetIsBetweenSmallerAndLargerOnes) {
  learn(kSize, first_, {8, 0, 0});
  learn(kSize, thirds_, {5, 5, 5});
  for (const double part : {0.2, 0.5}) {
    const double alone = time_of(0, 0b001, part);
    const double among_three = time_of(0, 0b111, part);
    ASSERT_LT(alone, among_three);
    EXPECT_NEAR(time_of(0, 0b011, part), (alone + among_three) / 2, 0.01);
    EXPECT_NEAR(time_of(1, 0b011, part), time_of(1, 0b111, part), 0.01) << "only three are known";
  }
  EXPECT_FALSE(model_.has_measured(kSize, 0b011)) << "this is an estimate";
}

TEST_F(LaneModelTest, AnUnknownClassIsAsTheNearestOne) {
  learn(10, first_, {0.1, 0, 0});
  learn(30, first_, {8 * 1024, 0, 0});
  EXPECT_NEAR(time_of(0, 0b001, 1, 13), 0.8, 0.01);
  EXPECT_NEAR(time_of(0, 0b001, 1, 27), 1024, 1);
  EXPECT_FALSE(model_.has_measured(11, 0b001));
}

// ---- Changes -----------------------------------------------------------------------------------

TEST_F(LaneModelTest, AChangeCountsInAllOfTheLanesSets) {
  for (const double ratio : {0.3, 0.6, 1.5, 4.0}) {
    model_ = LaneModel(kThree);
    learn(kSize, first_, {8, 0, 0}, 3);
    learn(kSize, second_, {0, 8, 0}, 3);
    learn(kSize, halves_, {4, 4, 0}, 3);
    model_.lane_changed(kSize, 0, ratio);
    EXPECT_NEAR(time(kSize, first_), 8 * ratio, 0.1 * ratio) << ratio;
    EXPECT_NEAR(time_of(0, 0b011, 0.5), 4 * ratio, 0.1 * ratio) << ratio;
    EXPECT_NEAR(time_of(1, 0b011, 0.5), 4, 0.1) << ratio;
    EXPECT_NEAR(time(kSize, second_), 8, 0.1) << ratio;
  }
}

TEST_F(LaneModelTest, AChangeLeavesTheStartUpTime) {
  // Lane 0 takes 3 ms, and 2 for each MiB.
  learn(kSize, in_proportion({1, 3, 0}), {3.5, 3.5, 0});
  learn(kSize, in_proportion({3, 1, 0}), {4.5, 4.5, 0});
  model_.lane_changed(kSize, 0, 2);
  EXPECT_NEAR(time_of(0, 0b011, 0.75), 6, 0.5);
}

TEST_F(LaneModelTest, AChangeMakesTimesOfOtherClassesOld) {
  learn(kSize, first_, {8, 0, 0}, 5);
  learn(kSize + 1, first_, {16, 0, 0}, 5);
  model_.lane_changed(kSize, 0, 1.5);
  EXPECT_NEAR(time_of(0, 0b001, 0.5, kSize + 1), 8, 0.1) << "times from before count together";
  learn(kSize + 1, first_, {24, 0, 0});
  EXPECT_NEAR(time(kSize + 1, first_), 24, 0.1) << "one new window counts for more than old ones";
}

TEST_F(LaneModelTest, ForgetsTheSetsOfALane) {
  learn(kSize, first_, {8, 0, 0});
  learn(kSize, second_, {0, 8, 0});
  learn(kSize, halves_, {4, 4, 0});
  model_.forget(kSize, 0b010);
  EXPECT_TRUE(model_.has_measured(kSize, 0b001));
  EXPECT_FALSE(model_.has_measured(kSize, 0b010));
  EXPECT_FALSE(model_.has_measured(kSize, 0b011));
  EXPECT_FALSE(model_.line(kSize, 0b010, 1));
  learn(kSize, second_, {0, 80, 0});
  EXPECT_NEAR(time(kSize, second_), 80, 0.1);
}

TEST_F(LaneModelTest, WhatIsForgottenIsOldInOtherClasses) {
  learn(kSize, first_, {8, 0, 0});
  learn(kSize + 1, first_, {16, 0, 0}, 5);
  learn(kSize + 1, second_, {0, 16, 0}, 5);
  model_.forget(kSize, 0b001);
  EXPECT_NEAR(time(kSize, first_), 8, 0.1) << "old times are better than none";
  learn(kSize + 1, first_, {24, 0, 0});
  EXPECT_NEAR(time(kSize + 1, first_), 24, 0.1);
}

// ---- Lanes that finish together ----------------------------------------------------------------

TEST_F(LaneModelTest, LanesFinishTogetherByTheirRates) {
  learn(kSize, halves_, {2, 6, 0});
  const Split split = model_.finish_together(kSize, bytes_of(kSize), 0b011).value();
  EXPECT_EQ(split.set, 0b011);
  EXPECT_NEAR(split.time / 1e6, 3, 0.01);
  EXPECT_NEAR(split.allocation[0], 0.75 * SliceBounds::kWhole, 100);
  EXPECT_NEAR(split.allocation[1], 0.25 * SliceBounds::kWhole, 100);
  EXPECT_EQ(split.allocation[2], 0);
  EXPECT_EQ(split.allocation[0] + split.allocation[1], SliceBounds::kWhole);
}

TEST_F(LaneModelTest, LanesWithStartUpTimesFinishTogether) {
  learn(kSize, first_, {5, 0, 0});
  learn(kSize, second_, {0, 16, 0});
  learn(kSize, thirds_, {3, 7, 4});
  const Split split = model_.finish_together(kSize, bytes_of(kSize), 0b111).value();
  for (size_t lane = 0; lane < kThree; ++lane) {
    const double part = 1.0 * split.allocation[lane] / SliceBounds::kWhole;
    EXPECT_NEAR(time_of(static_cast<int>(lane), 0b111, part), split.time / 1e6, 0.01) << lane;
  }
  EXPECT_LT(split.time / 1e6, 7) << "less than by equal parts";
}

TEST_F(LaneModelTest, OneLaneFinishesWithEverything) {
  learn(kSize, second_, {0, 8, 0});
  const Split split = model_.finish_together(kSize, bytes_of(kSize) / 2, 0b010).value();
  EXPECT_EQ(split.allocation, second_);
  EXPECT_NEAR(split.time / 1e6, 4, 0.01);
}

TEST_F(LaneModelTest, ALaneThatWouldCarryAlmostNothingIsNoneToFinishWith) {
  learn(kSize, halves_, {1, 1000, 0});
  EXPECT_FALSE(model_.finish_together(kSize, bytes_of(kSize), 0b011));
  EXPECT_TRUE(model_.predict(kSize, bytes_of(kSize), halves_));
}

}  // namespace
}  // namespace nezha
