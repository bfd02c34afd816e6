// SPDX-License-Identifier: Apache-2.0
#include "transport/retry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace nezha {
namespace {

// How long after `start` the retry becomes due, in whole milliseconds.
Nanos wait_of(const Retry& retry, Nanos start, bool is_last_resort) {
  Nanos waited = 0;
  while (!retry.due(start + waited, is_last_resort)) waited += kMillisecond;
  return waited;
}

void expect_about(Nanos length, Nanos expected) {
  EXPECT_GE(length, expected * 3 / 4);
  EXPECT_LE(length, expected * 5 / 4 + kMillisecond);
}

TEST(Retry, TheFirstAttemptIsDueAtOnce) {
  const Retry retry;
  EXPECT_TRUE(retry.due(0, false));
  EXPECT_EQ(retry.trust(0), 1);
}

TEST(Retry, AttemptsThatFailAreMadeLessAndLessOften) {
  Retry retry;
  Nanos expected = Retry::kFirst;
  for (int i = 0; i < 12; ++i) {
    retry.attempt_failed(kSecond);
    expect_about(wait_of(retry, kSecond, false), expected);
    expected = std::min(2 * expected, Retry::kLongestWait);
  }
  retry.carrier_returned();
  EXPECT_TRUE(retry.due(kSecond, false));
  retry.link_up(kSecond);
}

TEST(Retry, RanksDoNotTryAllAtOnce) {
  std::set<Nanos> waits;
  for (int i = 0; i < 20; ++i) {
    Retry retry;
    for (int failure = 0; failure < 8; ++failure) retry.attempt_failed(0);
    waits.insert(wait_of(retry, 0, false));
  }
  EXPECT_GT(waits.size(), 10u);
}

TEST(Retry, ALinkThatDiesAgainRestsLonger) {
  Retry retry;
  Nanos time = kSecond;
  Nanos expected = Retry::kFirst;
  for (int death = 0; death < 8; ++death) {
    retry.link_up(time);
    time += kSecond;
    retry.link_died(time);
    expect_about(wait_of(retry, time, false), expected);
    // With no other link, the retry waits only as long as after a failed attempt.
    expect_about(wait_of(retry, time, true), Retry::kFirst);
    expected = std::min(4 * expected, Retry::kLongestRest);
  }
  retry.carrier_returned();
  EXPECT_TRUE(retry.due(time, true));
  EXPECT_FALSE(retry.due(time, false)) << "it rests because the carrier comes and goes";
}

TEST(Retry, ALinkThatWasWellForLongIsForgiven) {
  for (const bool is_long : {false, true}) {
    Retry retry;
    Nanos time = kSecond;
    for (int death = 0; death < 5; ++death) {  // the last rest: 5.12 s
      retry.link_up(time);
      retry.link_died(time);
    }
    retry.link_up(time);
    time += is_long ? 25 * kSecond : 15 * kSecond;
    retry.link_died(time);
    expect_about(wait_of(retry, time, false), is_long ? Retry::kFirst : 20480 * kMillisecond);
  }
}

TEST(Retry, ALinkThatComesBackIsTrustedMoreAndMore) {
  Retry retry;
  retry.link_up(0);
  EXPECT_EQ(retry.trust(0), 1);
  retry.link_died(kSecond);
  retry.link_up(2 * kSecond);
  EXPECT_EQ(retry.trust(2 * kSecond), Retry::kFirstTrust);
  EXPECT_EQ(retry.trust(2 * kSecond + Retry::kTrustDoubles), 2 * Retry::kFirstTrust);
  EXPECT_EQ(retry.trust(4 * kSecond), 1);
}

}  // namespace
}  // namespace nezha
