// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/core/window.h"

#include <vector>

#include "gtest/gtest.h"

namespace nezha::flare {
namespace {

constexpr RetryTiming kTiming = {
    .first = 10 * kMillisecond, .least = kMillisecond, .most = 100 * kMillisecond};

std::vector<uint32_t> all_new(Window& window, Nanos now) {
  std::vector<uint32_t> seqs;
  while (const auto seq = window.take_new(now)) seqs.push_back(*seq);
  return seqs;
}

std::vector<uint32_t> all_overdue(Window& window, Nanos now) {
  std::vector<uint32_t> seqs;
  while (const auto seq = window.take_overdue(now)) seqs.push_back(*seq);
  return seqs;
}

using Seqs = std::vector<uint32_t>;

TEST(Window, SendsABlockWhenItHasTheResultOfTheOneAWindowBefore) {
  Window window(4, 0, kTiming);
  EXPECT_EQ(all_new(window, 1), Seqs{});
  EXPECT_EQ(window.extend(10), 0);
  EXPECT_EQ(all_new(window, 1), (Seqs{0, 1, 2, 3}));
  EXPECT_TRUE(window.on_result(2, 2));  // each slot advances independently
  EXPECT_EQ(all_new(window, 2), Seqs{6});
  EXPECT_TRUE(window.on_result(6, 3));
  EXPECT_TRUE(window.on_result(3, 3));
  EXPECT_EQ(all_new(window, 3), Seqs{7});  // block 10 has not been offered yet
  EXPECT_EQ(window.unfinished(), 7);
  EXPECT_EQ(window.extend(1), 10);
  EXPECT_EQ(all_new(window, 3), Seqs{10});
}

TEST(Window, GoesOnInPlacesThatFellFarBehind) {
  Window window(2, 0, kTiming);
  window.extend(10);
  EXPECT_EQ(all_new(window, 1), (Seqs{0, 1}));
  for (const uint32_t seq : {1U, 3U, 5U, 7U, 9U}) {
    EXPECT_TRUE(window.on_result(seq, 1));
    all_new(window, 1);
  }
  EXPECT_EQ(window.unfinished(), 5);
  EXPECT_TRUE(window.on_result(0, 1));
  EXPECT_EQ(all_new(window, 1), Seqs{2});
}

TEST(Window, TakesEachResultOnce) {
  Window window(2, 0, kTiming);
  window.extend(3);
  EXPECT_FALSE(window.on_result(0, 1));  // not sent yet
  all_new(window, 1);
  EXPECT_TRUE(window.on_result(0, 2));
  EXPECT_FALSE(window.on_result(0, 3));
  EXPECT_FALSE(window.on_result(2, 3));  // due next, but not sent
  EXPECT_FALSE(window.on_result(1000, 3));
  EXPECT_EQ(window.unfinished(), 2);
}

TEST(Window, SequenceNumbersWrap) {
  Window window(4, 0xfffffffe, kTiming);
  EXPECT_EQ(window.extend(8), 0xfffffffe);
  EXPECT_EQ(all_new(window, 1), (Seqs{0xfffffffe, 0xffffffff, 0, 1}));
  EXPECT_TRUE(window.on_result(0xffffffff, 2));
  EXPECT_EQ(all_new(window, 2), Seqs{3});
  EXPECT_TRUE(window.on_result(0xfffffffe, 2));
  EXPECT_TRUE(window.on_result(2 - 1, 2));
  EXPECT_EQ(all_new(window, 2), (Seqs{2, 5}));
}

TEST(Window, SendsAgainWithDoublingIntervals) {
  Window window(2, 0, kTiming);
  window.extend(1);
  EXPECT_EQ(window.next_due(), Window::kNever);
  all_new(window, 0);
  Nanos due = 10 * kMillisecond;
  for (const Nanos interval : {20, 40, 80, 100, 100}) {
    EXPECT_EQ(window.next_due(), due);
    EXPECT_EQ(all_overdue(window, due - 1), Seqs{});
    EXPECT_EQ(all_overdue(window, due), Seqs{0});
    due += interval * kMillisecond;
  }
  EXPECT_EQ(window.resent(), 5);
  EXPECT_TRUE(window.on_result(0, due));
  EXPECT_EQ(window.next_due(), Window::kNever);
  EXPECT_EQ(all_overdue(window, due + kSecond), Seqs{});
}

// The timeouts that RFC 6298 computes: R and R/2 first, then weights of 1/8 and 1/4.
TEST(Window, LearnsTheRoundTrip) {
  Window window(1, 0, kTiming);
  window.extend(3);
  window.take_new(0);
  window.on_result(0, 8 * kMillisecond);
  window.take_new(10 * kMillisecond);
  EXPECT_EQ(window.next_due(), (10 + 8 + 4 * 4) * kMillisecond);
  window.on_result(1, 26 * kMillisecond);
  window.take_new(30 * kMillisecond);
  EXPECT_EQ(window.next_due(), (30 + 9 + 4 * 5) * kMillisecond);
}

TEST(Window, KeepsTheDoubledIntervalUntilARoundTripIsKnown) {
  Window window(1, 0, kTiming);
  window.extend(3);
  window.take_new(0);
  EXPECT_EQ(all_overdue(window, 10 * kMillisecond), Seqs{0});
  window.on_result(0, 11 * kMillisecond);
  window.take_new(20 * kMillisecond);
  EXPECT_EQ(window.next_due(), (20 + 20) * kMillisecond);
  window.on_result(1, 24 * kMillisecond);
  window.take_new(30 * kMillisecond);
  EXPECT_EQ(window.next_due(), (30 + 4 + 4 * 2) * kMillisecond);
}

TEST(Window, LearnsNothingFromBlocksThatWaited) {
  for (const bool is_resent : {false, true}) {
    Window window(1, 0, kTiming);
    window.extend(2);
    window.take_new(0);
    if (is_resent) all_overdue(window, 10 * kMillisecond);
    window.on_pending(0, 10 * kMillisecond);
    window.on_result(0, 11 * kMillisecond);
    window.take_new(20 * kMillisecond);
    EXPECT_EQ(window.next_due(), 30 * kMillisecond);
  }
}

// Sends a window of blocks at `now`, whose results all arrive a round trip later. Returns that
// time.
Nanos pass_a_window(Window& window, Nanos now, Nanos round_trip) {
  const Seqs seqs = all_new(window, now);
  const Nanos end = now + round_trip;
  while (window.next_due() < end) all_overdue(window, window.next_due());
  for (const uint32_t seq : seqs) EXPECT_TRUE(window.on_result(seq, end));
  return end;
}

TEST(Window, LearnsARoundTripThatHasGrownBeyondItsTimeout) {
  constexpr uint32_t kSize = 4;
  Window window(kSize, 0, kTiming);
  Nanos now = 0;
  window.extend(100 * kSize);
  for (int i = 0; i < 50; ++i) now = pass_a_window(window, now, kMillisecond);
  EXPECT_EQ(window.resent(), 0);
  for (int i = 0; i < 10; ++i) now = pass_a_window(window, now, 20 * kMillisecond);
  const uint64_t resent = window.resent();
  EXPECT_GT(resent, 0);
  for (int i = 0; i < 40; ++i) now = pass_a_window(window, now, 20 * kMillisecond);
  EXPECT_EQ(window.resent(), resent);
}

TEST(Window, AsksLaterForABlockThatWaits) {
  Window window(1, 0, kTiming);
  window.extend(1);
  window.take_new(0);
  window.on_pending(0, 5 * kMillisecond);
  EXPECT_EQ(all_overdue(window, 14 * kMillisecond), Seqs{});
  EXPECT_EQ(all_overdue(window, 15 * kMillisecond), Seqs{0});
  window.on_pending(0, 16 * kMillisecond);
  EXPECT_EQ(all_overdue(window, 35 * kMillisecond), Seqs{});
  EXPECT_EQ(all_overdue(window, 36 * kMillisecond), Seqs{0});
}

TEST(Window, SendsAtOnceWhatTheSwitchLacks) {
  Window window(4, 0, kTiming);
  window.extend(4);
  for (const uint32_t seq : all_new(window, 0)) EXPECT_EQ(window.number_of(seq), seq);
  EXPECT_EQ(window.next_number(), 4);
  window.on_result(1, 1);
  window.on_lost({0, 2}, 1);
  window.on_lost({0, 1}, 1);
  window.on_lost({4, 9}, 1);  // not sent yet
  EXPECT_LE(window.next_due(), 1);
  EXPECT_EQ(all_overdue(window, 1), Seqs{0});
  EXPECT_EQ(window.number_of(0), 4);
  EXPECT_GT(window.next_due(), 1);
  window.on_lost({0, 1}, 2);  // it was sent again since then
  EXPECT_EQ(all_overdue(window, 2), Seqs{});
  // The retransmission has moved block 0's timeout to a later time.
  EXPECT_EQ(all_overdue(window, 10 * kMillisecond), (Seqs{3, 2}));
  EXPECT_EQ(all_overdue(window, 10 * kMillisecond + 1), Seqs{0});
}

TEST(Window, FindsGapsInTheResultsNumbers) {
  Window window(4, 0, kTiming);
  const auto lost_before = [&](uint16_t number, bool is_numbered) {
    return window.lost_before({.is_numbered = is_numbered, .number = number});
  };
  EXPECT_EQ(lost_before(0, true).count, 0);
  EXPECT_EQ(lost_before(1, false).count, 0);
  EXPECT_EQ(lost_before(3, true), (NumberRange{1, 2}));
  EXPECT_EQ(lost_before(2, true).count, 0);
  EXPECT_EQ(lost_before(5, false), (NumberRange{4, 1}));
}

TEST(Window, SendsMoreOrLessAsThePathTakes) {
  Window window(256, 0, kTiming);
  window.extend(10000);
  Nanos now = 0;
  const uint32_t first = window.limit();
  ASSERT_LT(first, 256);
  EXPECT_EQ(all_new(window, now).size(), first);
  // The first results may have waited for all ranks to begin, so they do not show the round trip.
  for (uint32_t seq = 0; seq < first; ++seq) window.on_result(seq, 50 * kMillisecond);
  EXPECT_EQ(window.limit(), first);
  now = 50 * kMillisecond;
  for (int i = 0; i < 20; ++i) now = pass_a_window(window, now, kMillisecond);
  EXPECT_EQ(window.limit(), 256);
  for (int i = 0; i < 40; ++i) now = pass_a_window(window, now, 2 * FlightLimit::kGoal);
  EXPECT_LT(window.limit(), first);
}

// If each host had its limit of blocks in flight, but different blocks, the hosts would wait for
// each other.
TEST(Window, NeverHoldsBackTheLowestBlock) {
  constexpr Nanos kTurn = FlightLimit::kGoal;  // a round trip that leaves the limit unchanged
  Window window(16, 0, kTiming);
  window.extend(100);
  for (const uint32_t seq : all_new(window, 0)) window.number_of(seq);
  for (uint32_t seq = 1; seq < 16; ++seq) window.on_result(seq, kTurn);
  for (const uint32_t seq : all_new(window, kTurn)) window.number_of(seq);
  window.on_lost({20, 10}, kTurn);
  ASSERT_EQ(window.limit(), 8);  // while blocks 17 to 31 are in flight
  window.on_result(0, kTurn);
  EXPECT_EQ(all_new(window, kTurn), Seqs{16});
  for (uint32_t seq = 17; seq < 25; ++seq) window.on_result(seq, 2 * kTurn);
  EXPECT_EQ(all_new(window, 2 * kTurn), Seqs{});  // only the limit holds block 33 back
  window.on_result(25, 2 * kTurn);
  EXPECT_EQ(all_new(window, 2 * kTurn), Seqs{33});
}

TEST(Window, StaggersTheBlocksOfAGroup) {
  Window window(16, 6, kTiming, {.blocks = 4, .first = 3});
  window.extend(9);  // the blocks belong to the groups that begin with 4, 8 and 12
  EXPECT_EQ(all_new(window, 1), (Seqs{7, 6, 11, 8, 9, 10, 12, 13, 14}));
}

TEST(Window, StaggersBlocksWhoseNumbersWrap) {
  Window window(16, 0xfffffffd, kTiming, {.blocks = 4, .first = 2});
  window.extend(6);
  EXPECT_EQ(all_new(window, 1), (Seqs{0xfffffffe, 0xffffffff, 0xfffffffd, 2, 0, 1}));
}

// Hosts that stagger have different blocks in flight from the start.
TEST(Window, NeverHoldsBackTheLowestBlockHoweverItStaggers) {
  Window window(256, 0, kTiming, {.blocks = 64, .first = 16});
  window.extend(200);
  Seqs sent = all_new(window, 0);
  ASSERT_EQ(sent.size(), 64);  // all of the first group
  EXPECT_EQ(sent.front(), 16);
  EXPECT_EQ(sent.back(), 15);
  for (const uint32_t seq : sent) window.number_of(seq);
  window.on_lost({0, 64}, 1);
  ASSERT_EQ(window.limit(), 8);
  for (uint32_t seq = 0; seq < 60; ++seq) window.on_result(seq, FlightLimit::kGoal);
  EXPECT_EQ(all_new(window, FlightLimit::kGoal), (Seqs{80, 81, 82, 83}));
  for (uint32_t seq = 60; seq < 63; ++seq) {
    window.on_result(seq, FlightLimit::kGoal);
    EXPECT_EQ(all_new(window, FlightLimit::kGoal), Seqs{24 + seq});
  }
  window.on_result(63, FlightLimit::kGoal);
  EXPECT_EQ(all_new(window, FlightLimit::kGoal), (Seqs{87, 64}));  // 64 goes beyond the limit
}

TEST(Window, SaysSinceWhenNothingWasHeard) {
  Window window(2, 0, kTiming);
  window.extend(2);
  EXPECT_EQ(window.silent_since(), Window::kNever);
  all_new(window, 5);
  EXPECT_EQ(window.silent_since(), 5);
  all_overdue(window, kSecond);
  EXPECT_EQ(window.silent_since(), 5);
  window.on_pending(1, kSecond);
  EXPECT_EQ(window.silent_since(), kSecond);
  window.on_pending(7, 2 * kSecond);  // this window has no such block
  EXPECT_EQ(window.silent_since(), kSecond);
  window.on_result(0, 3 * kSecond);
  EXPECT_EQ(window.silent_since(), 3 * kSecond);
  window.on_result(1, 4 * kSecond);
  EXPECT_EQ(window.silent_since(), Window::kNever);
}

}  // namespace
}  // namespace nezha::flare
