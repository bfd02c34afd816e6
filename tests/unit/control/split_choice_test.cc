// SPDX-License-Identifier: Apache-2.0
#include "control/split_choice.h"

#include <vector>

#include "control/model_policy.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

constexpr SizeClass kMegabytes = 20;
constexpr SizeClass kKilobytes = 10;

// Two rails, and stripes over both.
class SplitChoiceTest : public testing::Test {
 protected:
  static constexpr LaneSet kStripes = 0b100;

  static Window window_of(SizeClass size_class, const std::vector<Nanos>& times) {
    Window window{size_class, typical_bytes(size_class), 1, {}, Timer::kOperations};
    for (const Nanos time : times) window.lanes.push_back({time, time / 100});
    return window;
  }
  void learn(SizeClass size_class, const std::vector<Nanos>& times, const Allocation& ran_by) {
    model_.learn(window_of(size_class, times), ran_by);
    choice_.saw(window_of(size_class, times), ran_by, false);
  }

  const ModelPolicy lanes_{3, kStripes};
  LaneModel model_{3};
  SplitChoice choice_{lanes_, model_};
  const Allocation both_ = in_proportion({1, 1, 0});
};

TEST_F(SplitChoiceTest, SpreadsWhatIsLongEnoughForEachLaneToGetSome) {
  choice_.open(kMegabytes);
  choice_.open(kKilobytes);
  EXPECT_TRUE(choice_.suits(kMegabytes, 0b11));
  EXPECT_FALSE(choice_.suits(kKilobytes, 0b11));
  EXPECT_TRUE(choice_.suits(kKilobytes, 0b01));
  EXPECT_FALSE(choice_.suits(kKilobytes, kStripes));
  choice_.saw(window_of(kMegabytes, {9'000'000, 0, 0}), both_, false);  // lane 1 got nothing
  EXPECT_FALSE(choice_.suits(kMegabytes, 0b11));
  choice_.look_again(kMegabytes);
  EXPECT_TRUE(choice_.suits(kMegabytes, 0b11));
}

// A lane that a class's messages are too short for is probed by more of them, up to a bound.
TEST_F(SplitChoiceTest, RaisesAProbesPartWhereItWasTooShort) {
  choice_.open(kMegabytes);
  const double first = choice_.probe_part(kMegabytes);
  choice_.saw(window_of(kMegabytes, {9'000'000, 0, 0}), both_, true);
  EXPECT_EQ(choice_.probe_part(kMegabytes), 2 * first);
  EXPECT_TRUE(choice_.is_spread(kMegabytes));
  for (int i = 0; i < 20; ++i) {
    choice_.saw(window_of(kMegabytes, {9'000'000, 0, 0}), both_, true);
  }
  EXPECT_EQ(choice_.probe_part(kMegabytes), 1. / 16);
}

TEST_F(SplitChoiceTest, LetsWhatALaneCarriesGrowByFourAtOnce) {
  choice_.open(kMegabytes);
  const auto bytes = static_cast<double>(typical_bytes(kMegabytes));
  const Allocation little = in_proportion({31, 1, 0});
  choice_.saw(window_of(kMegabytes, {9'000'000, 9'000'000, 0}), little, false);
  const auto next = choice_.in_steps(kMegabytes, bytes, both_);
  ASSERT_TRUE(next.has_value());
  EXPECT_NEAR((*next)[1], in_proportion({7, 1, 0})[1], 4);  // roundings
  choice_.became_slower(1, 2);
  EXPECT_NEAR((*choice_.in_steps(kMegabytes, bytes, both_))[1], in_proportion({15, 1, 0})[1], 4);
}

// Where others live on what they have saved up, the only one that does not is late.
TEST_F(SplitChoiceTest, ALaneMayGoOnCarryingWhatItWasLateWith) {
  choice_.open(kMegabytes);
  const auto bytes = static_cast<double>(typical_bytes(kMegabytes));
  const Allocation most = in_proportion({19, 1, 0});
  choice_.saw(window_of(kMegabytes, {9'000'000, 100'000, 0}), most, false);
  EXPECT_EQ(choice_.in_steps(kMegabytes, bytes, most), most);
  choice_.saw(window_of(kMegabytes, {100'000, 100'000, 0}), in_proportion({1, 19, 0}), false);
  EXPECT_NE(choice_.in_steps(kMegabytes, bytes, most), most) << "it carries less by now";
}

TEST_F(SplitChoiceTest, ChoosesWhatTakesLeast) {
  choice_.open(kMegabytes);
  const auto bytes = static_cast<double>(typical_bytes(kMegabytes));
  EXPECT_FALSE(choice_.best(kMegabytes, bytes, lanes_.live(), false).has_value());
  learn(kMegabytes, {9'000'000, 0, 0}, all_on(0, 3));
  learn(kMegabytes, {0, 9'000'000, 0}, all_on(1, 3));
  learn(kMegabytes, {5'000'000, 5'000'000, 0}, both_);
  learn(kMegabytes, {0, 0, 6'000'000}, all_on(2, 3));
  EXPECT_EQ(choice_.best(kMegabytes, bytes, lanes_.live(), false)->set, 0b11U);
  EXPECT_EQ(choice_.best(kMegabytes, bytes, kStripes, true)->set, kStripes);
  EXPECT_FALSE(choice_.best(kMegabytes, bytes, 0b01, true)->allocation[1] > 0);
}

// A bucket of tokens is soon empty.
TEST_F(SplitChoiceTest, ShortMessagesTakeNoLessThanALanesRateSays) {
  const LaneRates rates = [](bool) { return std::vector<double>{100e6, 20e6, 0}; };
  SplitChoice choice(lanes_, model_, rates);
  const SizeClass size_class = 12;
  const auto bytes = static_cast<double>(typical_bytes(size_class));
  choice.open(size_class);
  model_.learn(window_of(size_class, {90'000, 0, 0}), all_on(0, 3));
  model_.learn(window_of(size_class, {0, 60'000, 0}), all_on(1, 3));
  choice_.open(size_class);
  ASSERT_EQ(choice_.best(size_class, bytes, lanes_.live(), false)->set, 0b10U);
  EXPECT_EQ(choice.best(size_class, bytes, lanes_.live(), false)->set, 0b01U);
  EXPECT_NEAR(choice.best(size_class, bytes, 0b10, false)->time, 0.8 * bytes / 20e6 * 1e9, 1);
}

TEST_F(SplitChoiceTest, ShortMessagesLeaveARailForLittleLessOnlyIfTheOtherIsFarFaster) {
  for (const double rate : {30e6, 50e6}) {
    const LaneRates rates = [rate](bool) { return std::vector<double>{rate, 20e6, 0}; };
    const SplitChoice choice(lanes_, model_, rates);
    const Split slow{0b10, all_on(1, 3), 100'000};
    const Split fast{0b01, all_on(0, 3), 80'000};
    EXPECT_EQ(choice.is_better(true, 4096, fast, slow, 0.1), rate == 50e6) << rate;
    EXPECT_FALSE(choice.is_better(true, 4096, {0b10, slow.allocation, 60'000}, fast, 0.1));
    EXPECT_TRUE(choice.is_better(true, 4096, {0b10, slow.allocation, 50'000}, fast, 0.1));
  }
}

// Bursts show rates once: of a rail that was busy then, or is slower by now, they tell nothing
// true.
TEST_F(SplitChoiceTest, WhatIsMeasuredAgainAndAgainRefutesARate) {
  const LaneRates rates = [](bool) { return std::vector<double>{10e6, 50e6, 0}; };
  const SizeClass size_class = 12;
  const auto bytes = static_cast<double>(typical_bytes(size_class));
  const Window by_first = window_of(size_class, {75'000, 0, 0});
  model_.learn(by_first, all_on(0, 3));
  model_.learn(window_of(size_class, {0, 150'000, 0}), all_on(1, 3));
  SplitChoice probed(lanes_, model_, rates);
  probed.open(size_class);
  for (int probe = 0; probe < 4; ++probe) {
    EXPECT_EQ(probed.best(size_class, bytes, lanes_.live(), false)->set, 0b10U) << probe;
    probed.saw(by_first, all_on(0, 3), true);
  }
  EXPECT_EQ(probed.best(size_class, bytes, lanes_.live(), false)->set, 0b01U);
  SplitChoice settled(lanes_, model_, rates);
  settled.open(size_class);
  settled.saw(by_first, all_on(0, 3), false);
  EXPECT_EQ(settled.best(size_class, bytes, lanes_.live(), false)->set, 0b01U);
  settled.saw(window_of(size_class, {600'000, 0, 0}), all_on(0, 3), false);
  EXPECT_EQ(settled.best(size_class, bytes, lanes_.live(), false)->set, 0b10U) << "it was right";
}

TEST_F(SplitChoiceTest, ALaneThatWasNoFasterWhenItWasUsedLastIsNotLeftForLittleLess) {
  const LaneRates rates = [](bool) { return std::vector<double>{100e6, 20e6, 0}; };
  SplitChoice choice(lanes_, model_, rates);
  const SizeClass size_class = 12;
  choice.open(size_class);
  const Split slow{0b10, all_on(1, 3), 150'000};
  const Split fast{0b01, all_on(0, 3), 120'000};
  choice.saw(window_of(size_class, {100'000, 0, 0}), all_on(0, 3), false);
  EXPECT_TRUE(choice.is_better(true, 4096, fast, slow, 0.1));
  choice.saw(window_of(size_class, {900'000, 0, 0}), all_on(0, 3), false);
  EXPECT_FALSE(choice.is_better(true, 4096, fast, slow, 0.1));
}

// Between stripes and slices of large messages less than a little is left to stripes.
TEST_F(SplitChoiceTest, LeavesStripesOnlyForWhatIsClearlyBetter) {
  const double large = 4 << 20;
  const Split stripes{kStripes, all_on(2, 3), 1'000'000};
  const Split slices{0b11, both_, 980'000};
  EXPECT_FALSE(choice_.is_better(true, large, slices, stripes, 0.01));
  EXPECT_TRUE(choice_.is_better(true, large / 2, slices, stripes, 0.01));
  EXPECT_TRUE(choice_.is_better(true, large, {0b11, both_, 970'000}, stripes, 0.01));
  EXPECT_TRUE(choice_.is_better(false, large, stripes, {0b11, both_, 990'000}, 0.01));
}

}  // namespace
}  // namespace nezha
