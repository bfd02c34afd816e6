// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/arrivals.h"

#include "gtest/gtest.h"

namespace nezha {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// The state after 1 MiB has arrived in this time.
Arrivals arrivals(Nanos time) {
  Arrivals arrivals;
  arrivals.add(kMiB / 2, kSecond);
  arrivals.add(kMiB / 2, kSecond + time);
  return arrivals;
}

TEST(Arrivals, HasNoSlackAndNoRestBeforeTheFirstArrival) {
  const Arrivals none;
  EXPECT_FALSE(none.has_slack(100 * kMiB, kSecond));
  EXPECT_EQ(none.rest(100 * kMiB, kSecond), 0);
}

TEST(Arrivals, HasSlackIfMuchIsLeft) {
  const Arrivals slow = arrivals(8 * kMillisecond);
  const Nanos time = kSecond + 8 * kMillisecond;
  EXPECT_TRUE(slow.has_slack(kMiB, time));
  EXPECT_TRUE(slow.has_slack(kMiB / 4, time));
  EXPECT_FALSE(slow.has_slack(kMiB / 8, time));
  EXPECT_FALSE(arrivals(kMillisecond).has_slack(kMiB, kSecond + kMillisecond));
}

TEST(Arrivals, RestsUntilTheNextBatch) {
  const Arrivals slow = arrivals(8 * kMillisecond);
  EXPECT_EQ(slow.rest(kMiB, kSecond + 8 * kMillisecond), 375 * kMicrosecond);  // 48 KiB
}

TEST(Arrivals, RestsLessIfLittleIsLeft) {
  const Arrivals slow = arrivals(32 * kMillisecond);
  EXPECT_EQ(slow.rest(kMiB / 16, kSecond + 32 * kMillisecond), 250 * kMicrosecond);
}

TEST(Arrivals, LimitsTheRestAndSkipsShortOnes) {
  const Nanos second = kSecond + kSecond;
  EXPECT_EQ(arrivals(kSecond).rest(kMiB, second), kMillisecond);
  EXPECT_EQ(arrivals(kMillisecond).rest(100 * kMiB, kSecond + kMillisecond), 0);
}

}  // namespace
}  // namespace nezha
