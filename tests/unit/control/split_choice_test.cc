#include "control/split_choice.h"

#include <vector>

#include "control/model_policy.h"
#include "control/probes.h"
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
  Probes probes_{lanes_, model_, choice_};
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

// Between stripes and slices of large messages less than a little is left to stripes.
TEST_F(SplitChoiceTest, LeavesStripesOnlyForWhatIsClearlyBetter) {
  const auto bytes = static_cast<double>(typical_bytes(kMegabytes));
  const Split stripes{kStripes, all_on(2, 3), 1'000'000};
  const Split slices{0b11, both_, 980'000};
  EXPECT_FALSE(choice_.is_better(true, bytes, slices, stripes, 0.01));
  EXPECT_TRUE(choice_.is_better(true, bytes, {0b11, both_, 970'000}, stripes, 0.01));
  EXPECT_TRUE(choice_.is_better(false, bytes, stripes, {0b11, both_, 990'000}, 0.01));
}

// Each that only confirms what was known lets the next one wait for twice as long.
TEST_F(SplitChoiceTest, ProbesOfShortMessagesThatConfirmBecomeRare) {
  choice_.open(kKilobytes);
  probes_.open(kKilobytes);
  const Window by_first = window_of(kKilobytes, {20'000, 0, 0});
  const auto windows_until_probe = [&] {
    learn(kKilobytes, {0, 30'000, 0}, all_on(1, 3));
    int windows = 0;
    for (; windows < 1000; ++windows) {
      probes_.ran(by_first);
      learn(kKilobytes, {20'000, 0, 0}, all_on(0, 3));
      if (const auto probe = probes_.next(by_first, all_on(0, 3))) {
        EXPECT_EQ(probe->allocation, all_on(1, 3));
        EXPECT_FALSE(probe->is_doubt);  // for those settled() counts windows
        return windows;
      }
    }
    return windows;
  };
  for (int i = 0; i < 5000; ++i) probes_.ran(by_first);  // so that the budget is not what decides
  const int at_first = windows_until_probe();
  probes_.ended(kKilobytes, 0b10, true);
  const int confirmed = windows_until_probe();
  EXPECT_GT(at_first, 2);
  EXPECT_NEAR(confirmed, 2 * at_first, 2);
  probes_.ended(kKilobytes, 0b10, false);
  EXPECT_EQ(windows_until_probe(), at_first);
}

// What was measured while ranks had just started is measured again, and so is what a change of
// short messages put in doubt, though not soon after another.
TEST_F(SplitChoiceTest, DoubtsWhatWasMeasuredAtFirst) {
  choice_.open(kKilobytes);
  probes_.open(kKilobytes);
  learn(kKilobytes, {20'000, 0, 0}, all_on(0, 3));
  learn(kKilobytes, {0, 30'000, 0}, all_on(1, 3));
  const auto doubts_within = [&](int windows) {
    int doubts = 0;
    for (int i = 0; i < windows; ++i) {
      probes_.settled(kKilobytes);
      const auto probe = probes_.next(window_of(kKilobytes, {20'000, 0, 0}), all_on(0, 3));
      doubts += probe && probe->is_doubt ? 1 : 0;
    }
    return doubts;
  };
  EXPECT_EQ(doubts_within(200), 2);
  probes_.search_opens(kKilobytes);
  probes_.doubt(kKilobytes);
  EXPECT_EQ(doubts_within(200), 2);
  probes_.search_opens(kKilobytes);
  probes_.doubt(kKilobytes);  // too soon
  EXPECT_EQ(doubts_within(100), 0);
}

}  // namespace
}  // namespace nezha
