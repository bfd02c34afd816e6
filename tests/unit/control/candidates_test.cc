// SPDX-License-Identifier: Apache-2.0
#include "control/candidates.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "control/fixed_policy.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

// Three rails, and stripes as lane 3. Messages have 1 MiB, in class 20, and are not cut from class
// 23 on. Times are milliseconds.
class CandidatesTest : public testing::Test {
 protected:
  static constexpr int kFour = 4;
  static constexpr LaneSet kStriped = 0b1000;
  static constexpr LaneSet kSliced = 0b0111;
  static constexpr SizeClass kSize = 20;
  static constexpr SizeClass kWholeFrom = 23;
  static constexpr double kLength = 1 << 20;

  void learn(SizeClass size_class, const Allocation& by, const std::vector<double>& times) {
    Window window{size_class, uint64_t{1} << size_class, 1, {}, Timer::kOperations};
    for (const double time : times) window.lanes.push_back({std::llround(time * 1e6), 0});
    model_.learn(window, by);
  }
  void learn_stripes(double time) { learn(kSize, on(3), {0, 0, 0, time}); }
  // Bursts alone have shown the rails' rates, in MiB per second.
  void set_rates(const std::vector<double>& mebibytes) {
    std::vector<double> rates;
    for (const double rate : mebibytes) rates.push_back(rate * kLength);
    rates.push_back(kNoRate);
    rates_ = [rates](bool also_tried) {
      return also_tried ? rates : std::vector<double>{0, 0, 0, kNoRate};
    };
  }

  static Allocation on(int lane) { return all_on(lane, kFour); }
  static Allocation equally(LaneSet set) { return equal_parts(set, kFour); }
  static Split home(const Allocation& by, double time) { return {lanes_of(by), by, time * 1e6}; }

  std::optional<Split> best(LaneSet among = 0b1111) const {
    return candidates_.best(kSize, kLength, among);
  }
  std::optional<Allocation> unmeasured(SizeClass size_class = kSize) const {
    return candidates_.unmeasured(size_class, std::ldexp(1.0, size_class));
  }
  std::optional<Split> trial_of(LaneSet set, const Split& home) const {
    return candidates_.trial_of(kSize, kLength, set, home);
  }

  FixedPolicy lanes_{kFour, kStriped, 0};
  LaneModel model_{kFour};
  LaneRates rates_;
  Candidates candidates_{lanes_, model_, rates_, kWholeFrom};
};

TEST_F(CandidatesTest, LongMessagesAreNotCutWhereThereAreStripes) {
  for (const SizeClass whole : {kWholeFrom, SizeClass{kWholeFrom + 9}}) {
    EXPECT_FALSE(candidates_.suits(whole, 0b0011));
    EXPECT_TRUE(candidates_.suits(whole, 0b0010));
    EXPECT_TRUE(candidates_.suits(whole, kStriped));
  }
  EXPECT_TRUE(candidates_.suits(kWholeFrom - 1, 0b0011));
  lanes_.set_live(kSliced);
  EXPECT_TRUE(candidates_.suits(kWholeFrom, 0b0011)) << "there are no stripes now";
}

// ---- The best ----------------------------------------------------------------------------------

TEST_F(CandidatesTest, NothingIsBestWhileNothingIsKnown) {
  EXPECT_FALSE(best());
  learn(kSize, on(1), {0, 8, 0, 0});
  EXPECT_FALSE(best(0b0001)) << "nothing is known of lane 0";
}

TEST_F(CandidatesTest, SeveralLanesAreBestUnlessTheyHinderEachOther) {
  learn(kSize, on(0), {8, 0, 0, 0});
  learn(kSize, equally(0b0011), {4, 8, 0, 0});
  const auto both = best();
  ASSERT_TRUE(both);
  EXPECT_EQ(both->set, 0b0011);
  EXPECT_LT(both->time, 6e6);
  EXPECT_GT(both->allocation[0], both->allocation[1]);
  for (int i = 0; i < 30; ++i) learn(kSize, equally(0b0011), {30, 30, 0, 0});
  EXPECT_EQ(best()->set, 0b0001);
}

TEST_F(CandidatesTest, TheBestIsOneOfThoseAskedFor) {
  learn(kSize, on(0), {4, 0, 0, 0});
  learn(kSize, on(1), {0, 8, 0, 0});
  learn_stripes(2);
  EXPECT_EQ(best()->set, kStriped);
  EXPECT_EQ(best(0b0011)->set, 0b0011) << "both are predicted to be faster than one";
  EXPECT_EQ(best(0b0001)->set, 0b0001);
  EXPECT_EQ(best(0b0010)->set, 0b0010);
}

TEST_F(CandidatesTest, TheBestHasOnlyLiveLanes) {
  learn(kSize, on(0), {4, 0, 0, 0});
  learn(kSize, on(1), {0, 8, 0, 0});
  learn_stripes(2);
  lanes_.set_live(0b0110);
  EXPECT_EQ(best()->set, 0b0010);
}

TEST_F(CandidatesTest, WhatIsOnlyPredictedMayBeBest) {
  learn(kSize, on(0), {8, 0, 0, 0});
  EXPECT_EQ(best()->set, 0b0001);
  learn(kSize + 1, on(2), {0, 0, 2, 0});
  EXPECT_TRUE(contains(best()->set, 2));
}

TEST_F(CandidatesTest, TheBestOfALongMessageIsWhole) {
  learn(kWholeFrom, on(0), {64, 0, 0, 0});
  learn(kWholeFrom, equally(0b0011), {32, 32, 0, 0});
  const double bytes = std::ldexp(1.0, kWholeFrom);
  EXPECT_EQ(candidates_.best(kWholeFrom, bytes, 0b1111)->set, 0b0001);
  lanes_.set_live(kSliced);
  EXPECT_EQ(candidates_.best(kWholeFrom, bytes, 0b1111)->set, 0b0011);
}

// ---- What must be measured first ---------------------------------------------------------------

TEST_F(CandidatesTest, StripesAreMeasuredFirstThenSlicesThenEachLane) {
  set_rates({200, 200, 200});  // 5 ms for a message
  EXPECT_EQ(unmeasured(), on(3));
  learn_stripes(4);
  EXPECT_EQ(unmeasured(), equally(kSliced));
  learn(kSize, equally(kSliced), {8, 8, 8, 0});
  EXPECT_EQ(unmeasured(), on(0));
  learn(kSize, on(0), {8, 0, 0, 0});
  EXPECT_EQ(unmeasured(), on(1));
  learn(kSize, on(1), {0, 8, 0, 0});
  EXPECT_EQ(unmeasured(), on(2));
  learn(kSize, on(2), {0, 0, 8, 0});
  EXPECT_EQ(unmeasured(), std::nullopt);
}

TEST_F(CandidatesTest, SlicesAreFirstOfEqualPartsIfNothingIsKnown) {
  learn_stripes(4);
  EXPECT_EQ(unmeasured(), equally(kSliced));
}

TEST_F(CandidatesTest, OnlyLiveLanesAreMeasured) {
  lanes_.set_live(0b0110);
  EXPECT_EQ(unmeasured(), equally(0b0110));
  lanes_.set_live(0b0100);
  EXPECT_EQ(unmeasured(), on(2));
  lanes_.set_live(kStriped);
  EXPECT_EQ(unmeasured(), on(3));
  learn_stripes(4);
  EXPECT_EQ(unmeasured(), std::nullopt) << "there is no other lane";
}

TEST_F(CandidatesTest, LongMessagesAreMeasuredWhole) {
  EXPECT_EQ(unmeasured(kWholeFrom), on(3));
  learn(kWholeFrom, on(3), {0, 0, 0, 32});
  EXPECT_EQ(unmeasured(kWholeFrom), on(0));
}

TEST_F(CandidatesTest, SlicesAreFirstCutByTheLanesRates) {
  learn_stripes(4);
  set_rates({100, 200, 100});
  const auto division = unmeasured();
  ASSERT_TRUE(division);
  EXPECT_NEAR((*division)[0], SliceBounds::kWhole / 4, 1);
  EXPECT_NEAR((*division)[1], SliceBounds::kWhole / 2, 1);
  EXPECT_NEAR((*division)[2], SliceBounds::kWhole / 4, 1);
  EXPECT_EQ((*division)[3], 0);
  set_rates({100, 0, 100});
  EXPECT_EQ(unmeasured(), equally(kSliced)) << "one rate is unknown";
  lanes_.set_live(0b1101);
  EXPECT_EQ(unmeasured(), equally(0b0101)) << "the lane with the unknown rate is lost";
}

TEST_F(CandidatesTest, ALaneThatMustBeFarSlowerIsNotMeasuredAlone) {
  learn_stripes(4);
  learn(kSize, equally(kSliced), {4, 4, 4, 0});
  set_rates({20, 20, 200});  // 50 ms, 50 ms and 5 ms
  EXPECT_EQ(unmeasured(), on(2));
  set_rates({20, 20, 20});
  EXPECT_EQ(unmeasured(), std::nullopt);
}

// ---- Trials ------------------------------------------------------------------------------------

TEST_F(CandidatesTest, AKnownSetIsTriedByWhatFinishesTogether) {
  learn(kSize, equally(0b0011), {2, 6, 0, 0});
  const auto trial = trial_of(0b0011, home(on(0), 4));
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->set, 0b0011);
  EXPECT_NEAR(trial->allocation[0], 0.75 * SliceBounds::kWhole, 100);
  EXPECT_NEAR(trial->time, 3e6, 1e4);
}

TEST_F(CandidatesTest, ALongMessageIsNotCutOnTrial) {
  learn(kWholeFrom, equally(0b0011), {2, 6, 0, 0});
  const double bytes = std::ldexp(1.0, kWholeFrom);
  EXPECT_FALSE(candidates_.trial_of(kWholeFrom, bytes, 0b0011, home(on(0), 4)));
  EXPECT_TRUE(candidates_.trial_of(kWholeFrom, bytes, 0b0010, home(on(0), 4)));
}

TEST_F(CandidatesTest, AnUnknownLaneIsTriedWithAll) {
  const auto trial = trial_of(0b0010, home(on(0), 4));
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->set, 0b0010);
  EXPECT_EQ(trial->allocation, on(1));
  EXPECT_EQ(trial->time, 4e6) << "nothing says that it is slower than the home";
  set_rates({100, 50, 100});
  EXPECT_NEAR(trial_of(0b0010, home(on(0), 4))->time, 20e6, 1e3) << "by its rate";
}

TEST_F(CandidatesTest, WhatWouldTakeFarLongerIsNotTried) {
  set_rates({100, 1, 100});
  EXPECT_FALSE(trial_of(0b0010, home(on(0), 4)));
  EXPECT_TRUE(trial_of(0b0100, home(on(0), 4)));
}

TEST_F(CandidatesTest, AFurtherLaneIsTriedWithALittle) {
  const Split both = home(in_proportion({0.75, 0.25, 0, 0}), 4);
  const auto trial = trial_of(kSliced, both);
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->set, kSliced);
  EXPECT_EQ(lanes_of(trial->allocation), kSliced);
  EXPECT_LT(trial->allocation[2], SliceBounds::kWhole / 20);
  EXPECT_NEAR(trial->allocation[0], 3.0 * trial->allocation[1], 10);
  EXPECT_EQ(trial->time, 4e6);
}

TEST_F(CandidatesTest, ALittleOnASlowLaneTakesWhatThatLaneTakes) {
  learn(kSize, equally(0b0011), {2, 600, 0, 0});  // 1200 ms for a message
  const auto trial = trial_of(0b0011, home(on(0), 4));
  ASSERT_TRUE(trial);
  EXPECT_GT(trial->time, 10e6);
  EXPECT_LT(trial->time, 30e6);
  EXPECT_FALSE(trial_of(0b0011, home(on(0), 0.1))) << "far slower than the home";
}

TEST_F(CandidatesTest, TheHomeItselfIsTriedAsItIs) {
  const Split both = home(in_proportion({0.9, 0.1, 0, 0}), 4);
  const auto trial = trial_of(0b0011, both);
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->allocation, both.allocation);
  EXPECT_EQ(trial->time, both.time);
}

// By another algorithm, whose messages in another class have a longer time per byte.
TEST_F(CandidatesTest, AnotherAlgorithmThatIsUnknownHereIsTriedAsIfItTookTheHomesTime) {
  set_rates({10, 10, 10});  // as short messages show them
  learn(kSize - 2, on(0), {5, 0, 0, 0});
  const auto trial = trial_of(0b0001, home(on(0), 4));
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->allocation, on(0));
  EXPECT_EQ(trial->time, 4e6);
}

TEST_F(CandidatesTest, AnUnknownSetFarFromTheHomeIsNotTried) {
  EXPECT_FALSE(trial_of(kSliced, home(on(0), 4))) << "two lanes more";
  EXPECT_FALSE(trial_of(0b0011, home(on(3), 4))) << "slices in place of stripes";
  EXPECT_FALSE(trial_of(0b0110, home(equally(0b0011), 4))) << "another lane in place of one";
}

}  // namespace
}  // namespace nezha
