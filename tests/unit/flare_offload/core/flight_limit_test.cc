// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/core/flight_limit.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace nezha::flare {
namespace {

constexpr uint32_t kWindow = 4096;

// A path that passes `rate` blocks per millisecond, takes at least 0.1 ms, and drops the blocks in
// flight beyond `queue`. after_a_while() makes 1000 round trips.
struct Path {
  double rate;
  uint32_t queue = kWindow;
  double loss = 0;  // applies however short the queue is
};

uint32_t after_a_while(FlightLimit& limit, const Path& path) {
  for (int round = 0; round < 1000; ++round) {
    const uint32_t sent = limit.blocks();
    const uint32_t passed = std::min(sent, path.queue);
    const auto lost = static_cast<uint32_t>(passed * path.loss);
    const auto round_trip = static_cast<Nanos>(passed / path.rate * kMillisecond);
    for (uint32_t i = lost; i < passed; ++i) {
      limit.on_round_trip(std::max(round_trip, kMillisecond / 10));
    }
    limit.on_lost(sent - passed + lost);
  }
  return limit.blocks();
}

TEST(FlightLimit, FollowsTheRate) {
  FlightLimit limit(kWindow);
  for (const double rate : {20., 90., 900., 5., 300.}) {  // blocks per millisecond
    SCOPED_TRACE(rate);
    EXPECT_NEAR(after_a_while(limit, {rate}), rate * FlightLimit::kGoal / kMillisecond, 2);
  }
}

TEST(FlightLimit, KeepsItsBounds) {
  FlightLimit small(4);
  EXPECT_EQ(small.blocks(), 4);
  EXPECT_EQ(after_a_while(small, {.rate = 1000}), 4);
  small.on_lost(1000);
  EXPECT_EQ(small.blocks(), 4);
  FlightLimit limit(kWindow);
  EXPECT_LT(limit.blocks(), kWindow);
  EXPECT_EQ(after_a_while(limit, {.rate = 100000}), kWindow);
  limit.on_lost(2 * kWindow);
  EXPECT_EQ(limit.blocks(), 8);
  EXPECT_EQ(after_a_while(limit, {.rate = 0.1}), 8);
}

// The limit exceeds a short queue by about a sixth at most.
TEST(FlightLimit, DoesNotOverrunAShortQueueForLong) {
  FlightLimit limit(kWindow);
  const uint32_t blocks = after_a_while(limit, {.rate = 200, .queue = 150});
  EXPECT_GT(blocks, 130);
  EXPECT_LT(blocks, 150 * 1.18);
}

TEST(FlightLimit, BearsRandomLoss) {
  FlightLimit limit(kWindow);
  EXPECT_GT(after_a_while(limit, {.rate = 90, .loss = 0.05}), 150);
}

TEST(FlightLimit, IsLittleMovedByOnePause) {
  FlightLimit limit(kWindow);
  const uint32_t before = after_a_while(limit, {.rate = 90});
  for (uint32_t i = 0; i < before; ++i) limit.on_round_trip(100 * kMillisecond);
  EXPECT_GT(limit.blocks(), before * 0.8);
  EXPECT_LT(limit.blocks(), before);
}

}  // namespace
}  // namespace nezha::flare
