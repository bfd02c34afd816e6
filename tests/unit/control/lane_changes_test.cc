// SPDX-License-Identifier: Apache-2.0
#include "control/lane_changes.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace nezha {
namespace {

constexpr SizeClass kChangedClass = 20;
constexpr uint64_t kBytes = 1 << 20;

Window window(Nanos first, Nanos second) {
  return {kChangedClass, kBytes, 1, {{first, 0}, {second, 0}}, Timer::kOperations};
}

class LaneChangesTest : public testing::Test {
 protected:
  LaneChangesTest() {
    for (int i = 0; i < 5; ++i) model_.learn(window(4'000'000, 4'000'000), halves_);
  }
  LaneChanges of(Nanos first, Nanos second) const {
    return lane_changes(model_, window(first, second), halves_, 0b11);
  }

  const Allocation halves_ = equal_parts(0b11, 2);
  LaneModel model_{2};
};

TEST_F(LaneChangesTest, NoLaneHasChangedIfAllAreLate) {
  EXPECT_TRUE(of(4'000'000, 4'100'000).empty());
  EXPECT_TRUE(of(9'000'000, 9'000'000).empty());
}

TEST_F(LaneChangesTest, ALaneThatIsLateBesideOthersHasChanged) {
  for (const Nanos stall : {1, 2}) {
    const LaneChanges changes = of(stall * 4'000'000, stall * 12'000'000);
    ASSERT_EQ(changes.size(), 1);
    EXPECT_EQ(changes[0].lane, 1);
    EXPECT_NEAR(changes[0].ratio, 3.0 * static_cast<double>(stall), 0.5);
  }
}

TEST_F(LaneChangesTest, AnEarlyLaneHasChangedOnlyIfByMuch) {
  EXPECT_TRUE(of(4'000'000, 3'000'000).empty()) << "its bucket may have been full of tokens";
  const LaneChanges changes = of(4'000'000, 1'200'000);
  ASSERT_EQ(changes.size(), 1);
  EXPECT_EQ(changes[0].lane, 1);
  EXPECT_NEAR(changes[0].ratio, 0.3, 0.05);
}

TEST_F(LaneChangesTest, OnlySuspectsAreNamed) {
  EXPECT_TRUE(lane_changes(model_, window(4'000'000, 12'000'000), halves_, 0b01).empty());
}

TEST_F(LaneChangesTest, NothingIsKnownOfASetThatWasNotMeasured) {
  EXPECT_TRUE(lane_changes(model_, window(90'000'000, 0), all_on(0, 2), 0b11).empty());
}

}  // namespace
}  // namespace nezha
