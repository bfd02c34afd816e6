// SPDX-License-Identifier: Apache-2.0
#include "transport/rate.h"

#include "gtest/gtest.h"

namespace nezha {
namespace {

TEST(RateEstimator, LearnsBytesOverBusyTime) {
  RateEstimator rate(1e6);
  EXPECT_DOUBLE_EQ(rate.rate(), 1e6);
  // 100,000 bytes per millisecond, with long idle times that do not count.
  Nanos time = kSecond;
  int changes = 0;
  for (int i = 0; i < 100; ++i) {
    rate.submitted(100'000, time);
    time += kMillisecond;
    changes += rate.acknowledged(100'000, time) ? 1 : 0;
    time += kSecond;
  }
  EXPECT_NEAR(rate.rate(), 1e8, 1);
  EXPECT_GT(changes, 0);
  EXPECT_LT(changes, 100);
  EXPECT_EQ(rate.in_flight(), 0u);
}

TEST(RateEstimator, AGuessReplacesOnlyAGuess) {
  RateEstimator guessed(1e6);
  guessed.guess(5e6);
  EXPECT_EQ(guessed.rate(), 5e6);

  RateEstimator known(1e6, /*is_guess=*/false);
  RateEstimator busy(1e6);
  busy.submitted(1 << 20, kSecond);
  busy.acknowledged(1 << 20, kSecond + 100 * kMillisecond);
  for (RateEstimator* each : {&known, &busy}) {
    const double before = each->rate();
    each->guess(2e6);
    EXPECT_EQ(each->rate(), before);
  }

  RateEstimator flattered(1e6);  // misled by the burst that a token bucket lets through
  Nanos time = kSecond;
  for (int i = 0; i < 100; ++i) {
    flattered.submitted(4 << 10, time);
    time += 200 * kMicrosecond;
    flattered.acknowledged(4 << 10, time);
  }
  ASSERT_GT(flattered.rate(), 5e6);
  flattered.guess(2e6);
  EXPECT_EQ(flattered.rate(), 2e6);
}

// Messages, each of which answers and acknowledges the one before.
void in_step(RateEstimator& rate, Nanos& time, Nanos each, int messages, uint64_t bytes = 4 << 10) {
  rate.submitted(bytes, time);
  for (int i = 0; i < messages; ++i) {
    time += each;
    rate.submitted(bytes, time);
    rate.acknowledged(bytes, time + kMicrosecond);
  }
  rate.acknowledged(bytes, time + 2 * kMicrosecond);
  time += 3 * kMicrosecond;
}

TEST(RateEstimator, MessagesInStepShowChangesOfTheRateNotTheRate) {
  RateEstimator rate(125e6);
  Nanos time = kSecond;
  in_step(rate, time, 80 * kMicrosecond, 1000);  // half the rate: the rail serves two messages
  EXPECT_NEAR(rate.rate(), 125e6, 5e6);
  EXPECT_TRUE(rate.is_guess());
  in_step(rate, time, 320 * kMicrosecond, 1000);
  EXPECT_NEAR(rate.rate(), 125e6 / 4, 5e6);
  in_step(rate, time, 80 * kMicrosecond, 1000);
  EXPECT_NEAR(rate.rate(), 125e6, 10e6);

  rate.guess(60e6);  // a trial measures the rate
  in_step(rate, time, 80 * kMicrosecond, 1000);
  EXPECT_NEAR(rate.rate(), 60e6, 3e6);
  in_step(rate, time, 40 * kMicrosecond, 5000);
  EXPECT_NEAR(rate.rate(), 102e6, 5e6) << "the rail carries at least so much";

  rate.submitted(1 << 20, time);
  rate.acknowledged(1 << 20, time + 50 * kMillisecond);
  EXPECT_NEAR(rate.rate(), 21e6, 1e6) << "and then a long message shows it";
  EXPECT_FALSE(rate.is_guess());
}

TEST(RateEstimator, OtherMessagesInStepAreNoChangeOfTheRate) {
  RateEstimator rate(125e6);
  Nanos time = kSecond;
  for (int i = 0; i < 3; ++i) {
    in_step(rate, time, 70 * kMicrosecond, 1000, 7 << 10);
    EXPECT_NEAR(rate.rate(), 125e6, 10e6);
    in_step(rate, time, 80 * kMicrosecond, 1000);
    EXPECT_NEAR(rate.rate(), 125e6, 10e6);
  }
  in_step(rate, time, 40 * kMicrosecond, 300);  // a window that another link's peer has missed
  in_step(rate, time, 80 * kMicrosecond, 1000);
  EXPECT_GT(rate.rate(), 90e6);

  RateEstimator slow(5e6);
  in_step(slow, time, 1600 * kMicrosecond, 100);  // six of them take ten milliseconds
  EXPECT_NEAR(slow.rate(), 5e6, 0.5e6);
  EXPECT_TRUE(slow.is_guess());
}

// A slow rail has little in flight, but is never idle.
TEST(RateEstimator, LearnsFromALongMessageOnASlowLink) {
  RateEstimator rate(4.9e6);
  Nanos time = kSecond;
  rate.submitted(15 << 10, time);
  for (int i = 0; i < 100; ++i) {
    rate.submitted(15 << 10, time);
    time += 15 * kSecond / 4000;  // somewhat more than 4 MB/s
    rate.acknowledged(15 << 10, time);
  }
  EXPECT_NEAR(rate.rate(), 4.1e6, 0.1e6);
  EXPECT_FALSE(rate.is_guess());
}

// An acknowledgement that something else delayed does not show the rate.
TEST(RateEstimator, WhatIsDisturbedDoesNotCount) {
  for (const bool before : {false, true}) {
    RateEstimator rate(1e8);
    Nanos time = kSecond;
    for (int i = 0; i < 5; ++i) {
      if (before) rate.submitted(8 << 10, time);
      rate.disturb(true);
      if (!before) rate.submitted(8 << 10, time);
      time += 20 * kMillisecond;
      rate.submitted(8 << 10, time);
      rate.disturb(false);
      EXPECT_FALSE(rate.acknowledged(8 << 10, time));
      EXPECT_FALSE(rate.acknowledged(8 << 10, time + kMillisecond));
      time += kMillisecond;
    }
    EXPECT_EQ(rate.rate(), 1e8);
    EXPECT_EQ(rate.in_flight(), 0u);
    rate.submitted(1 << 20, time);  // later messages count
    EXPECT_TRUE(rate.acknowledged(1 << 20, time + 20 * kMillisecond));
    EXPECT_NEAR(rate.rate(), 52e6, 1e6);
  }
}

// A shaper lets bursts through, so a window that a burst ended does not show the rate.
TEST(RateEstimator, BurstsAreAveragedOverTime) {
  RateEstimator rate(1e8);
  Nanos time = kSecond;
  double mean = 0;
  for (int i = 0; i < 400; ++i) {  // 100 KB in 10 ms, then 100 KB in 30 ms
    rate.submitted(100'000, time);
    time += (i % 2 == 0 ? 10 : 30) * kMillisecond;
    rate.acknowledged(100'000, time);
    if (i >= 300) mean += rate.rate() / 100;
  }
  EXPECT_NEAR(mean, 5e6, 2e5);
}

TEST(RateEstimator, OneStallDoesNotDecide) {
  RateEstimator rate(1e8);
  Nanos time = kSecond;
  const auto run = [&](Nanos period) {
    rate.submitted(1'000'000, time);
    time += period;
    rate.acknowledged(1'000'000, time);
  };
  for (int i = 0; i < 100; ++i) run(10 * kMillisecond);
  run(500 * kMillisecond);
  EXPECT_GT(rate.rate(), 0.5e8);
}

TEST(RateEstimator, FollowsALargeChangeAtOnce) {
  RateEstimator rate(1e8);
  Nanos time = kSecond;
  const auto run = [&](int windows, Nanos period) {
    for (int i = 0; i < windows; ++i) {
      rate.submitted(1'000'000, time);
      time += period;
      rate.acknowledged(1'000'000, time);
    }
  };
  run(100, 10 * kMillisecond);
  EXPECT_NEAR(rate.rate(), 1e8, 1);
  run(3, 30 * kMillisecond);
  EXPECT_LT(rate.rate(), 0.4e8) << "two windows that are far off say that it has changed";
  run(3, 10 * kMillisecond);
  EXPECT_GT(rate.rate(), 0.9e8);
}

// The message is short and nothing is known yet: the guess may be right, and the peer may just not
// have been scheduled.
TEST(RateEstimator, OneLateAcknowledgementDoesNotDecide) {
  constexpr double kGuess = 125e6;
  for (const Nanos late : {15 * kMillisecond, kSecond}) {
    RateEstimator rate(kGuess);
    Nanos time = kSecond;
    const auto run = [&](uint64_t bytes, Nanos period) {
      rate.submitted(bytes, time);
      time += period;
      rate.acknowledged(bytes, time);
    };
    run(4096, late);
    EXPECT_GT(rate.rate(), 0.4 * kGuess);
    EXPECT_LT(rate.rate(), 0.6 * kGuess) << "but it counts for something";
    for (int i = 0; i < 4; ++i) run(1'250'000, 10 * kMillisecond);
    EXPECT_GT(rate.rate(), 0.8 * kGuess);
    run(4096, late);
    EXPECT_GT(rate.rate(), 0.4 * kGuess) << "nor does one later on";
  }
}

// 2 Mbit/s, where the guess is 1 Gbit/s.
TEST(RateEstimator, FindsASlowLinkAtOnce) {
  constexpr double kSlow = 250e3;
  const auto samples = [](uint64_t bytes) {
    RateEstimator rate(125e6);
    Nanos time = kSecond;
    int count = 0;
    for (; rate.rate() > 1.1 * kSlow && count < 100; ++count) {
      rate.submitted(bytes, time);
      time += static_cast<Nanos>(static_cast<double>(bytes * kSecond) / kSlow);
      rate.acknowledged(bytes, time);
    }
    return count;
  };
  EXPECT_EQ(samples(64 << 10), 1);
  EXPECT_LE(samples(4 << 10), 2) << "the second shows that the first was no accident";
}

// A small message takes as long as the network's delay, whatever the rate.
TEST(RateEstimator, SmallBusyPeriodsDoNotLowerIt) {
  RateEstimator rate(1e8);
  Nanos time = kSecond;
  for (int i = 0; i < 1000; ++i) {
    rate.submitted(4096, time);
    time += kMillisecond;
    EXPECT_FALSE(rate.acknowledged(4096, time));
  }
  EXPECT_DOUBLE_EQ(rate.rate(), 1e8);
}

// The link has become ten times as fast, but gets so little data that it is never busy for long.
TEST(RateEstimator, SmallBusyPeriodsRaiseIt) {
  RateEstimator rate(1e6);
  Nanos time = kSecond;
  for (int i = 0; i < 2000; ++i) {
    rate.submitted(4096, time);
    time += 400 * kMicrosecond;
    rate.acknowledged(4096, time);
    time += kMillisecond;
  }
  EXPECT_NEAR(rate.rate(), 4096 / 400e-6, 1e5);
}

TEST(RateEstimator, OverlappingSegmentsShareTheBusyTime) {
  RateEstimator rate(1);
  rate.submitted(1000, kSecond);
  rate.submitted(1000, kSecond + 5 * kMillisecond);
  EXPECT_EQ(rate.in_flight(), 2000u);
  EXPECT_FALSE(rate.acknowledged(1000, kSecond + 6 * kMillisecond));
  EXPECT_TRUE(rate.acknowledged(1000, kSecond + 20 * kMillisecond));
  EXPECT_NEAR(rate.rate(), 2000 / 0.020, 1);
}

TEST(RateEstimator, FollowsAChangeGradually) {
  RateEstimator rate(1);
  Nanos time = kSecond;
  const auto run = [&](uint64_t bytes, int times) {
    for (int i = 0; i < times; ++i) {
      rate.submitted(bytes, time);
      time += 20 * kMillisecond;
      rate.acknowledged(bytes, time);
    }
  };
  run(20'000, 3);
  EXPECT_NEAR(rate.rate(), 1e6, 1);
  run(10'000, 1);
  EXPECT_LT(rate.rate(), 1e6);
  EXPECT_GT(rate.rate(), 5e5);
  run(10'000, 40);
  EXPECT_NEAR(rate.rate(), 5e5, 5e3);
}

TEST(RateEstimator, ForgetsWhatWasInFlightOnADeadLink) {
  RateEstimator rate(1);
  rate.submitted(1000, kSecond);
  rate.reset_in_flight();
  EXPECT_EQ(rate.in_flight(), 0u);
  rate.submitted(1000, 100 * kSecond);
  EXPECT_TRUE(rate.acknowledged(1000, 100 * kSecond + 20 * kMillisecond));
  EXPECT_NEAR(rate.rate(), 1000 / 0.020, 1);
}

// Sends 8 KiB at a time over a network with this delay and rate; some acknowledgements are late.
class ShortPeriods {
 public:
  explicit ShortPeriods(RateEstimator& estimator) : estimator_(estimator) {}
  void pass(int count, Nanos delay, double rate) {
    constexpr uint64_t kBytes = 8 << 10;
    for (int i = 0; i < count; ++i) {
      estimator_.submitted(kBytes, time_);
      time_ += delay + static_cast<Nanos>(kBytes * kSecond / rate);
      if (i % 4 != 0) time_ += 3 * kMillisecond;
      estimator_.acknowledged(kBytes, time_);
      time_ += kMillisecond;
    }
  }

 private:
  RateEstimator& estimator_;
  Nanos time_ = kSecond;
};

TEST(RateEstimator, ShortPeriodsTellOfARateThatHasFallenFar) {
  for (const Nanos delay : {50 * kMicrosecond, 5 * kMillisecond}) {
    RateEstimator estimator(125e6);
    ShortPeriods periods(estimator);
    periods.pass(200, delay, 125e6);
    EXPECT_GT(estimator.rate(), 100e6) << "they do not show the delay";
    periods.pass(48, delay, 12.5e6);
    EXPECT_LT(estimator.rate(), 20e6);
    EXPECT_GT(estimator.rate(), 10e6);
    RateEstimator recovering = estimator;
    ShortPeriods(recovering).pass(16, delay, 125e6);
    EXPECT_GT(recovering.rate(), 100e6);
  }
}

TEST(RateEstimator, HopeRaisesTheRateWithinALimitAndNeverLowersIt) {
  RateEstimator estimator(1e6);
  estimator.hope(3e6);
  EXPECT_EQ(estimator.rate(), 2e6);
  estimator.hope(3e6);
  EXPECT_EQ(estimator.rate(), 3e6);
  estimator.hope(2e6);
  EXPECT_EQ(estimator.rate(), 3e6);
}

}  // namespace
}  // namespace nezha
