// SPDX-License-Identifier: Apache-2.0
#include "transport/rate_trial.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/transport/channel_script.h"
#include "tests/unit/transport/fake_link.h"

namespace nezha {
namespace {

using testing::ChannelScript;
using testing::FakeConnection;
using testing::TestReceiver;

TEST_F(ChannelScript, ShortMessagesGoByTheLinkThatTakesBurstsInLessTime) {
  for (const Rail slow : {0, 1}) {
    std::vector<Nanos> burst_takes(2);
    burst_takes[static_cast<size_t>(slow)] = 20 * kMillisecond;
    connect(2, burst_takes);
    receive(0, 1, 10);
    EXPECT_EQ(rail_of_short(2), 0) << "nothing is known";
    pass(100 * kMillisecond);
    EXPECT_EQ(rail_of_short(3), 1 - slow) << "one burst by each is enough";
    pass(kSecond);
    EXPECT_EQ(rail_of_short(4), 1 - slow);
    for (const Rail rail : {0, 1}) {
      EXPECT_EQ(burst_frames(rail), 3 * RateTrial::kFrames) << "rail " << rail;
    }
    pass(30 * kSecond);
    EXPECT_EQ(burst_frames(0) + burst_frames(1), 6 * RateTrial::kFrames) << "once";
    network_.reset();
  }
}

TEST_F(ChannelScript, OneDelayedBurstDoesNotDecide) {
  connect(2, {100 * kMillisecond, 20 * kMillisecond});
  receive(0, 1, 10);
  FakeConnection::End& end = network_->connection(0)->ends[0];
  ASSERT_EQ(end.burst_frames, RateTrial::kFrames);
  end.burst_takes = 0;
  pass(kSecond);
  EXPECT_EQ(end.burst_frames, 3 * RateTrial::kFrames);
  EXPECT_EQ(rail_of_short(2), 0);
}

TEST_F(ChannelScript, BurstsAreSentOnlyWhereTheyAreUseful) {
  connect(1);
  receive(0, 1, 10);
  pass(kSecond);
  EXPECT_EQ(burst_frames(0), 0) << "there is no other link";
  network_.reset();

  connect(2);
  receive(1, 2, 256 << 10);
  send(0, 2, 256 << 10);
  clock_.advance(20 * kMillisecond);
  network_->settle_down();
  receive(0, 1, 10);
  pass(kSecond);
  EXPECT_EQ(burst_frames(0) + burst_frames(1), 2 * RateTrial::kFrames)
      << "a long message has shown the rates";
  network_.reset();

  connect(2);
  receive(0, 1, 10);
  lose_much(1);
  const int before = burst_frames(1);
  pass(kSecond);
  EXPECT_EQ(burst_frames(1), before) << "it loses much";
}

TEST_F(ChannelScript, ALinkThatDiesInABurstIsTriedAgainWhenItIsBack) {
  connect(2, {0, 100 * kMillisecond});
  receive(0, 1, 10);
  ASSERT_EQ(burst_frames(1), RateTrial::kFrames);
  network_->break_connection(*network_->connection(1), /*silent=*/false);
  network_->settle_down();
  send(0, 2, 10);
  for (int i = 0; i < 100 && channel(0).up() != 3; ++i) pass(5 * kMillisecond);
  ASSERT_EQ(channel(0).up(), 3u);
  EXPECT_EQ(network_->side(0).device(1)->trial().rate(), 0);
  pass(kSecond);
  EXPECT_GT(network_->side(0).device(1)->trial().rate(), 0);
}

TEST_F(ChannelScript, ALinkThatIsSlowToTakeABurstLearnsItsRateAfterwards) {
  connect(2, {0, kSecond});
  TestReceiver& waiting = receive(0, 1, 10);
  ASSERT_EQ(burst_frames(1), RateTrial::kFrames);
  send(1, 1, 10);
  pass(500 * kMillisecond);  // nobody waits, so another link may try the rail
  ASSERT_TRUE(waiting.complete);
  RateTrial& trial = network_->side(0).device(1)->trial();
  trial.hold(12345, now());
  EXPECT_TRUE(trial.is_due(12345, 0, now()));
  network_->connection(1)->ends[0].burst_takes = 0;
  receive(0, 2, 10);
  pass(2 * kSecond);
  const double before = network_->side(0).device(1)->counters().rate;
  receive(1, 3, 256 << 10);
  send(0, 3, 256 << 10);
  clock_.advance(20 * kMillisecond);
  network_->settle_down();
  EXPECT_NE(network_->side(0).device(1)->counters().rate, before);
}

TEST_F(ChannelScript, AChannelIsNotDrainedInTheMiddleOfABurst) {
  connect(2, {0, 100 * kMillisecond});
  receive(0, 1, 10);
  ASSERT_EQ(burst_frames(1), RateTrial::kFrames);
  pass(50 * kMillisecond);
  EXPECT_FALSE(channel(0).drained());
  clock_.advance(60 * kMillisecond);
  EXPECT_TRUE(channel(0).drained()) << "though nothing has come since";
}

TEST(RateTrial, TheQuickestOfThreeBurstsCounts) {
  RateTrial trial;
  // The parts of the seed are the waiting times after the first and the second burst.
  constexpr uint64_t kSeed = (0x0102ULL << 32 | 0x0304ULL << 16 | 0xffff);
  EXPECT_EQ(trial.rate(), 0);
  Nanos time = kSecond;
  Nanos quickest = kSecond;
  for (const Nanos took : {5 * kMillisecond, 2 * kMillisecond, 3 * kMillisecond}) {
    EXPECT_FALSE(trial.is_over());
    EXPECT_EQ(trial.is_due(7, kSeed, time), time == kSecond) << "at a time of its own";
    for (const Nanos end = time + 60 * kMillisecond; !trial.is_due(7, kSeed, time); ++time) {
      ASSERT_LT(time, end);
    }
    trial.sent(time);
    EXPECT_FALSE(trial.is_due(7, kSeed, time + kMillisecond)) << "one is under way";
    time += took;
    trial.arrived(time);
    quickest = std::min(quickest, took);
    EXPECT_DOUBLE_EQ(trial.rate(), (128 << 10) / (static_cast<double>(quickest) / kSecond));
  }
  EXPECT_TRUE(trial.is_over());
  EXPECT_FALSE(trial.is_due(7, 0, time + 100 * kSecond)) << "once";
}

TEST(RateTrial, TellsWhatABurstHasDisturbed) {
  RateTrial trial;
  EXPECT_FALSE(trial.has_disturbed(kSecond, 2 * kSecond));
  trial.sent(3 * kSecond);
  EXPECT_TRUE(trial.has_disturbed(2 * kSecond, 3 * kSecond)) << "one is under way";
  EXPECT_FALSE(trial.has_disturbed(4 * kSecond, 6 * kSecond)) << "it is not waited for";
  trial.arrived(3 * kSecond + 5);
  EXPECT_TRUE(trial.has_disturbed(3 * kSecond + 5, 4 * kSecond));
  EXPECT_FALSE(trial.has_disturbed(3 * kSecond + 6, 4 * kSecond));
  trial.disturbed(5 * kSecond);
  EXPECT_TRUE(trial.has_disturbed(5 * kSecond, 6 * kSecond)) << "a peer's";
  EXPECT_FALSE(trial.has_disturbed(5 * kSecond + 1, 6 * kSecond));
  ASSERT_TRUE(trial.is_due(7, 0, 6 * kSecond));
  trial.sent(6 * kSecond);
  trial.lost(8);
  EXPECT_TRUE(trial.has_disturbed(6 * kSecond, 7 * kSecond));
  trial.lost(7);
  EXPECT_FALSE(trial.has_disturbed(6 * kSecond, 7 * kSecond));
}

TEST(RateTrial, OneLinkOfARailIsTriedUnlessItIsGone) {
  RateTrial trial;
  ASSERT_TRUE(trial.is_due(1, 0, kSecond));
  trial.sent(kSecond);
  Nanos time = kSecond;
  for (; time < 2 * kSecond; time += 25 * kMillisecond) {
    trial.hold(1, time);
    trial.hold(2, time);
    EXPECT_FALSE(trial.is_due(2, 0, time));
  }
  EXPECT_TRUE(trial.is_under_way(1));
  time += 300 * kMillisecond;  // nobody looks after the first one any more
  EXPECT_TRUE(trial.is_due(2, 0, time));
  EXPECT_FALSE(trial.is_under_way(1));
}

}  // namespace
}  // namespace nezha
