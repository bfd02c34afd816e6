// SPDX-License-Identifier: Apache-2.0
#include "transport/scheduler.h"

#include <array>
#include <deque>
#include <list>
#include <map>
#include <random>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/recording_link.h"
#include "tests/unit/transport/virtual_clock.h"
#include "transport/outbox.h"

namespace nezha {
namespace {

using testing::RecordingLink;

class SchedulerTest : public ::testing::Test {
 protected:
  void up(Rail rail, double rate, const DeviceTraits& traits = {}) {
    scheduler_.link_up(rail, &links_[static_cast<size_t>(rail)], rate, traits);
  }
  OutSegment& segment(uint32_t length, Rail rail = kAnyRail) {
    OutSegment& made = segments_.emplace_back();
    made.length = length;
    made.rail = rail;
    return made;
  }
  RecycledDeque<OutSegment*>& on(Rail rail) {
    return links_[static_cast<size_t>(rail)].unacked_segments;
  }
  void ack_all(Rail rail) {
    while (!on(rail).empty()) ack_one(rail);
  }
  void ack_one(Rail rail) {
    OutSegment* done = on(rail).front();
    on(rail).pop_front();
    scheduler_.acknowledged(*done);
  }
  // Submits segments of this length one by one. Returns the charge of those before the first that
  // asks for an immediate acknowledgement, or 1 MiB if none does.
  uint64_t charge_until_asked(
      Rail rail, uint32_t bytes, absl::FunctionRef<void()> after_each = [] {}) {
    for (uint64_t charge = 0; charge < 1 << 20; charge += wire::charge(bytes)) {
      OutSegment& next = segment(bytes, rail);
      scheduler_.enqueue(next, kAllRails);
      scheduler_.pump();
      after_each();
      if (next.counted()) return charge;
    }
    return 1 << 20;
  }
  uint64_t bytes_on(Rail rail) {
    uint64_t sum = 0;
    for (const OutSegment* each : on(rail)) sum += each->length;
    return sum;
  }
  std::map<Rail, uint64_t> shares(uint64_t length, RailMask allowed = kAllRails) {
    std::map<Rail, uint64_t> result;
    for (const auto& cut : scheduler_.cut(length, 64, 1, allowed)) result[cut.rail] += cut.length;
    return result;
  }

  testing::VirtualClock clock_;
  std::array<RecordingLink, kMaxRails> links_;
  std::list<OutSegment> segments_;
  Scheduler scheduler_;
};

TEST_F(SchedulerTest, CutsCoverTheMessageInGranules) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 3000; ++round) {
    Scheduler scheduler;
    const uint64_t rails = random() % 5;
    for (uint64_t r = 0; r < rails; ++r) {
      scheduler.link_up(static_cast<Rail>(r), &links_[r],
                        1e6 * static_cast<double>(1 + random() % 5000));
    }
    const size_t granule = round % 3 == 0 ? 1 : 4 * (1 + random() % 20);
    const uint64_t length = random() % (round % 2 == 0 ? 20'000 : 5'000'000);
    const auto allowed = static_cast<RailMask>(random());
    const auto cuts = scheduler.cut(length, granule, 1 + static_cast<int>(random() % 3), allowed);
    uint64_t next = 0;
    for (const auto& cut : cuts) {
      ASSERT_EQ(cut.offset, next);
      ASSERT_EQ(cut.offset % granule, 0u);
      ASSERT_TRUE(cut.length > 0 || length == 0);
      if (rails > 0) {
        ASSERT_TRUE(scheduler.up() & rail_bit(cut.rail));
        ASSERT_LE(cut.length, kLongestSegment + granule);
        if ((scheduler.up() & allowed) != 0) {
          ASSERT_TRUE(allowed & rail_bit(cut.rail));
        }
      } else {
        ASSERT_EQ(cut.rail, kAnyRail);
      }
      next += cut.length;
    }
    ASSERT_EQ(next, length);
  }
}

TEST_F(SchedulerTest, SharesAreInProportionToTheRates) {
  up(0, 100e6);
  up(1, 300e6);
  up(2, 600e6);
  const auto got = shares(10'000'000);
  EXPECT_NEAR(static_cast<double>(got.at(0)), 1e6, 200);
  EXPECT_NEAR(static_cast<double>(got.at(1)), 3e6, 200);
  EXPECT_NEAR(static_cast<double>(got.at(2)), 6e6, 200);
}

TEST_F(SchedulerTest, ALinkThatIsLittleTrustedGetsLittle) {
  up(0, 100e6);
  up(1, 100e6);
  scheduler_.set_trust(1, 0.25);
  EXPECT_NEAR(static_cast<double>(shares(10'000'000).at(1)), 2e6, 200);
}

TEST_F(SchedulerTest, ARailThatIsTooSlowToBeUsedIsTriedAgain) {
  up(0, 100e6);
  up(1, 100e3);
  ASSERT_FALSE(shares(100'000).contains(1));
  for (int i = 0; i < 10; ++i) {
    clock_.advance(2 * kSecond);
    scheduler_.reconsider(now());
  }
  EXPECT_TRUE(shares(100'000).contains(1));
}

TEST_F(SchedulerTest, RailsThatDifferByNoiseGetEqualShares) {
  up(0, 110e6);
  up(1, 500e6);
  up(2, 95e6);
  up(3, 105e6);
  const auto long_shares = shares(10'000'000);
  EXPECT_NEAR(static_cast<double>(long_shares.at(0)), static_cast<double>(long_shares.at(3)), 200);
  EXPECT_GT(long_shares.at(0), long_shares.at(2) + 1000) << "it is a sixth slower";
  EXPECT_NEAR(static_cast<double>(long_shares.at(1)), 10e6 * 500 / 810, 20e3);
  const auto short_shares = shares(100'000);
  EXPECT_NEAR(static_cast<double>(short_shares.at(0)), static_cast<double>(short_shares.at(2)),
              200);
  EXPECT_NEAR(static_cast<double>(short_shares.at(1)), 1e5 * 500 / 810, 200);
}

TEST_F(SchedulerTest, SmallMessagesTakeTheFastestRailAlone) {
  up(0, 100e6);
  up(1, 300e6);
  EXPECT_EQ(shares(4000), (std::map<Rail, uint64_t>{{1, 4000}}));
  EXPECT_EQ(shares(4000, rail_bit(0)), (std::map<Rail, uint64_t>{{0, 4000}}));
  EXPECT_EQ(shares(4000, rail_bit(7)), (std::map<Rail, uint64_t>{{1, 4000}})) << "it is not up";
}

TEST_F(SchedulerTest, ARailWhosePartIsTooSmallGetsNone) {
  up(0, 1e6);
  up(1, 1000e6);
  EXPECT_EQ(shares(100'000).count(0), 0u);
  EXPECT_EQ(shares(20'000'000).count(0), 1u);
}

TEST_F(SchedulerTest, ShortMessagesGoWholeByTurnsOfRailsThatAreAlike) {
  EXPECT_EQ(scheduler_.whole(8 << 10, 0, kAllRails), kAnyRail);
  up(3, 100e6);
  EXPECT_EQ(scheduler_.whole(8 << 10, 0, kAllRails), kAnyRail) << "there is nothing to choose";
  up(1, 90e6);
  up(2, 60e6);  // too slow to take turns
  for (const uint64_t turn : {0u, 2u, 1'000'000u}) {
    EXPECT_EQ(scheduler_.whole(8 << 10, turn, kAllRails), 1);
    EXPECT_EQ(scheduler_.whole(16 << 10, turn + 1, kAllRails), 3);
  }
  EXPECT_EQ(scheduler_.whole((16 << 10) + 1, 0, kAllRails), kAnyRail) << "it is cut";
  EXPECT_EQ(scheduler_.whole(8 << 10, 0, rail_bit(3)), kAnyRail);
  scheduler_.avoid(1, true);
  EXPECT_EQ(scheduler_.whole(8 << 10, 0, kAllRails), 3);
}

TEST_F(SchedulerTest, EachRailGetsTheSegmentsThatAreAskedFor) {
  up(0, 100e6);
  up(1, 100e6);
  std::map<Rail, int> count;
  for (const auto& cut : scheduler_.cut(32 << 10, 64, 2, kAllRails)) ++count[cut.rail];
  EXPECT_EQ(count[0], 2);
  EXPECT_EQ(count[1], 2);
}

TEST_F(SchedulerTest, ALongPartOfAFastRailIsOneSegment) {
  up(0, 1e9);
  EXPECT_EQ(scheduler_.cut(64 << 10, 64, 2, kAllRails).size(), 2u);
  EXPECT_EQ(scheduler_.cut(128 << 10, 64, 2, kAllRails).size(), 1u);
  EXPECT_EQ(scheduler_.cut(2 * kLongSegment, 64, 2, kAllRails).size(), 2u);
}

TEST_F(SchedulerTest, OnlyTheLastSegmentOfAFastRailEndsWithAPartOfAPacket) {
  up(0, 300e6);
  for (const uint64_t length : {uint64_t{kLongSegment}, uint64_t{1} << 20}) {
    const auto cuts = scheduler_.cut(length, 64, 2, kAllRails);
    ASSERT_GT(cuts.size(), 1u);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) EXPECT_EQ(cuts[i].length % kPacket, 0u);
    EXPECT_LE(cuts.back().length, cuts.front().length + kPacket);
  }
  up(1, 1e9);
  EXPECT_EQ(scheduler_.cut(kLongestSegment, 64, 2, 0b10).size(), 1u) << "a rest of one packet";
  EXPECT_EQ(scheduler_.cut(kLongestSegment + 64, 64, 2, 0b10).size(), 2u);
}

// ---- What devices say of themselves ----------------------------------------------------------

TEST_F(SchedulerTest, SegmentsAreNoShorterThanTheDeviceAsksForNorLongerThanTheWireAllows) {
  std::mt19937_64 random(7);
  const size_t asked_for[] = {1, 5000, 64 << 10, 100'000, 256 << 10, 1 << 20, 4 << 20};
  for (int round = 0; round < 3000; ++round) {
    Scheduler scheduler;
    std::array<size_t, 3> least{};
    const size_t rails = 1 + random() % least.size();
    for (size_t rail = 0; rail < rails; ++rail) {
      if (random() % 3 > 0) least[rail] = asked_for[random() % std::size(asked_for)];
      scheduler.link_up(static_cast<Rail>(rail), &links_[rail],
                        1e6 * static_cast<double>(1 + random() % 20'000),
                        {.least_segment = least[rail]});
      least[rail] = std::min<size_t>(least[rail], 1 << 20);
    }
    const size_t granule = round % 3 == 0 ? 1 : 4 * (1 + random() % 20);
    const uint64_t length = 1 + random() % (round % 2 == 0 ? 300'000 : 20'000'000);
    const auto cuts = scheduler.cut(length, granule, 1 + static_cast<int>(random() % 3), kAllRails);
    std::map<Rail, int> count;
    for (const auto& cut : cuts) ++count[cut.rail];
    uint64_t next = 0;
    for (const auto& cut : cuts) {
      ASSERT_EQ(cut.offset, next);
      ASSERT_EQ(cut.offset % granule, 0u);
      ASSERT_LE(cut.length, wire::kMaxSegment);
      const bool is_long_enough = count[cut.rail] > 1;
      ASSERT_GE(cut.length, is_long_enough ? least[static_cast<size_t>(cut.rail)] : 1);
      next += cut.length;
    }
    ASSERT_EQ(next, length);
  }
}

TEST_F(SchedulerTest, ALongMessageIsCutIntoAsManySegmentsAsTheDeviceAsksFor) {
  up(0, 10e6, {.least_segment = 64 << 10});
  EXPECT_EQ(scheduler_.cut(1 << 20, 64, 2, kAllRails).size(), 16u);
  EXPECT_EQ(scheduler_.cut(128 << 10, 64, 2, kAllRails).size(), 2u);
  EXPECT_EQ(scheduler_.cut((128 << 10) - 64, 64, 2, kAllRails).size(), 1u);
  up(0, 10e9, {.least_segment = 1 << 20});
  EXPECT_EQ(scheduler_.cut(8 << 20, 64, 2, kAllRails).size(), 8u);
}

TEST_F(SchedulerTest, AFastRailsSegmentsMayBeLongerThanTheDeviceAsksFor) {
  up(0, 10e9);
  const size_t longest = scheduler_.cut(10 << 20, 64, 2, kAllRails).front().length;
  up(0, 10e9, {.least_segment = 64 << 10});
  EXPECT_EQ(scheduler_.cut(10 << 20, 64, 2, kAllRails).front().length, longest);
}

TEST_F(SchedulerTest, ANominalRateIsTakenWhereNoneWasLearned) {
  up(0, 0, {.nominal_rate = 3e9});
  EXPECT_DOUBLE_EQ(scheduler_.rate(0), 3e9);
  EXPECT_FALSE(scheduler_.is_guess(0)) << "no burst is to show it";
  up(0, 200e6, {.nominal_rate = 3e9});
  EXPECT_DOUBLE_EQ(scheduler_.rate(0), 200e6);
  up(0, 0);
  EXPECT_DOUBLE_EQ(scheduler_.rate(0), Scheduler::kInitialRate);
  EXPECT_TRUE(scheduler_.is_guess(0));
}

TEST(LongSegment, FillsPackets) {
  struct Packets {
    size_t size, frame, count;
  };
  // The payloads of TCP frames with timestamps, over IPv4 and IPv6.
  for (const auto [size, frame, count] :
       {Packets{32 << 10, 1448, 8}, Packets{32 << 10, 1428, 8}, Packets{64 << 10, 1448, 4},
        Packets{64 << 10, 1428, 4}, Packets{64 << 10, 8948, 4}, Packets{64 << 10, 8928, 4}}) {
    constexpr size_t kTcpHead = 320;  // Linux leaves room for these
    const size_t packet = (size - kTcpHead) / frame * frame;
    const size_t segment = wire::kFrameHeaderSize + wire::kDataHeaderSize + kLongSegment;
    EXPECT_LE(segment, count * packet) << size << " " << frame;
    EXPECT_GT(segment, (count - 1) * packet + packet / 2) << size << " " << frame;
  }
}

TEST_F(SchedulerTest, ASegmentTakesTheRailItNames) {
  up(0, 100e6);
  up(1, 1000e6);
  scheduler_.enqueue(segment(5000, 0), kAllRails);
  scheduler_.enqueue(segment(5000, 1), kAllRails);
  scheduler_.enqueue(segment(5000, 3), rail_bit(1));  // not up
  scheduler_.pump();
  EXPECT_EQ(on(0).size(), 1u);
  EXPECT_EQ(on(1).size(), 2u);
  EXPECT_EQ(segments_.front().rail, 0);
}

TEST_F(SchedulerTest, ASegmentOfNoRailTakesTheOneThatIsDoneSoonest) {
  up(0, 100e6);
  up(1, 100e6);
  scheduler_.enqueue(segment(10'000, 0), kAllRails);
  scheduler_.enqueue(segment(5000), kAllRails);
  scheduler_.enqueue(segment(4000), kAllRails);
  scheduler_.pump();
  EXPECT_EQ(bytes_on(0), 10'000u);
  EXPECT_EQ(bytes_on(1), 9000u);
}

TEST_F(SchedulerTest, WhatIsInFlightIsLimitedByTime) {
  up(0, 100e6);  // 6 ms: 600 kB
  up(1, 1e6);    // 6 kB, but at least 16 KiB
  for (int i = 0; i < 100; ++i) {
    scheduler_.enqueue(segment(10'000, 0), rail_bit(0));
    scheduler_.enqueue(segment(10'000, 1), rail_bit(1));
  }
  scheduler_.pump();
  EXPECT_EQ(on(0).size(), 60u);
  EXPECT_EQ(on(1).size(), 2u);
  OutSegment* first = on(0).front();
  on(0).pop_front();
  scheduler_.acknowledged(*first);
  scheduler_.pump();
  EXPECT_EQ(on(0).size(), 60u);
}

TEST_F(SchedulerTest, WhatIsInFlightIsLimitedByBytesOnAFastRail) {
  up(0, 10e9);  // 6 ms: 60 MB
  for (int i = 0; i < 100; ++i) scheduler_.enqueue(segment(256 << 10, 0), kAllRails);
  scheduler_.pump();
  EXPECT_EQ(bytes_on(0), 10u * (256 << 10));
}

// Otherwise acknowledgements that wait behind the peer's own data would slow the rail down.
TEST_F(SchedulerTest, DeliveredBytesTakeNoRoom) {
  up(0, 100e6);  // 600 KB take 6 ms
  for (int i = 0; i < 20; ++i) scheduler_.enqueue(segment(100'000, 0), kAllRails);
  scheduler_.pump();
  EXPECT_EQ(bytes_on(0), 600'000u);
  links_[0].bytes_undelivered = 600'000;
  scheduler_.pump();
  EXPECT_EQ(bytes_on(0), 600'000u);
  links_[0].bytes_undelivered = 0;
  scheduler_.pump();
  EXPECT_EQ(bytes_on(0), 2'000'000u);
}

// Such a peer has died, or its frames get lost.
TEST_F(SchedulerTest, APeerThatAcknowledgesNothingForLongGetsNoMoreThanHasRoom) {
  up(0, 100e6);
  for (int i = 0; i < 20; ++i) scheduler_.enqueue(segment(100'000, 0), kAllRails);
  scheduler_.pump();
  links_[0].bytes_undelivered = 0;
  clock_.advance(kSecond);
  scheduler_.pump();
  EXPECT_EQ(bytes_on(0), 600'000u);
}

// The peer's process reads nothing, although its machine has room for more.
TEST_F(SchedulerTest, DeliveredBytesAreLimitedToo) {
  up(0, 100e6);
  links_[0].bytes_undelivered = 0;
  for (int i = 0; i < 50; ++i) scheduler_.enqueue(segment(100'000, 0), kAllRails);
  scheduler_.pump();
  EXPECT_GE(bytes_on(0), 2'500'000u);
  EXPECT_LT(bytes_on(0), 2'800'000u);
}

// Acknowledgements are rare, but come before the retained bytes or the credit run out, and before
// the earlier segments take noticeable time.
TEST_F(SchedulerTest, SmallSegmentsAreAcknowledgedNowAndThen) {
  for (const uint32_t bytes : {4, 500, 2000}) {
    const auto step = static_cast<double>(wire::charge(bytes));
    up(0, 125e6);
    EXPECT_NEAR(static_cast<double>(charge_until_asked(0, bytes)), 25'000, step);
    ack_all(0);
    up(0, 1e6);
    EXPECT_NEAR(static_cast<double>(charge_until_asked(0, bytes)), 8 << 10, step);
    ack_all(0);
  }
  uint64_t all = 0;
  for (Rail rail = 0; rail < 8; ++rail) {
    up(rail, 10e9);
    all += charge_until_asked(rail, 500);
  }
  EXPECT_LE(all, Outbox::kMaxRetained);
  EXPECT_GE(all, 128u << 10);
}

TEST_F(SchedulerTest, LargeSegmentsAreAcknowledgedAtOnce) {
  up(0, 125e6);
  EXPECT_EQ(charge_until_asked(0, 4 << 10), 0u);
  EXPECT_NE(scheduler_.waiting_since(0), 0);
  ack_all(0);
  EXPECT_EQ(scheduler_.waiting_since(0), 0);
}

// A whole message may be answered, and the answer acknowledges it.
TEST_F(SchedulerTest, WholeMessagesOfUpTo16KiBWaitForAnAnswer) {
  up(0, 125e6);
  const auto is_asked_for = [&](uint32_t bytes, uint64_t total) {
    OutSegment& next = segment(bytes, 0);
    next.header.info.total = total;
    scheduler_.enqueue(next, kAllRails);
    scheduler_.pump();
    ack_all(0);
    return next.counted();
  };
  EXPECT_FALSE(is_asked_for(4 << 10, 4 << 10));
  EXPECT_FALSE(is_asked_for(16 << 10, 16 << 10));
  EXPECT_TRUE(is_asked_for(8 << 10, 16 << 10));
  EXPECT_TRUE(is_asked_for((16 << 10) + 1, (16 << 10) + 1));
  up(0, 10e6);
  EXPECT_TRUE(is_asked_for(16 << 10, 16 << 10)) << "takes long, and would hide a rate that falls";
}

// If each message is answered by another, acknowledgements are requested only to learn the rate.
TEST_F(SchedulerTest, UnaskedAcknowledgementsAreSeldomRequested) {
  for (const uint32_t bytes : {4, 500, 2000}) {
    up(0, 125e6);
    const uint64_t charge = charge_until_asked(0, bytes, [&] { ack_all(0); });
    EXPECT_NEAR(static_cast<double>(charge), 64 << 10, static_cast<double>(wire::charge(bytes)));
    ack_all(0);
  }
}

// Segments before one that asked are acknowledged gradually. These acknowledgements must not count
// for the segments that follow.
TEST_F(SchedulerTest, AcknowledgementsDoNotCountForLaterSegments) {
  up(0, 125e6);
  const uint64_t most = charge_until_asked(0, 2000);
  const size_t before = on(0).size();
  scheduler_.enqueue(segment(2000, 0), kAllRails);
  scheduler_.pump();
  for (size_t i = 0; i < before; ++i) ack_one(0);
  ASSERT_EQ(on(0).size(), 1u);
  EXPECT_EQ(charge_until_asked(0, 2000) + wire::charge(2000), most);
}

TEST_F(SchedulerTest, AnIdleRailTakesWorkFromTheTailOfALateOne) {
  up(0, 10e6);
  up(1, 100e6);
  for (int i = 0; i < 40; ++i) scheduler_.enqueue(segment(20'000, 0), kAllRails);
  scheduler_.pump();
  ASSERT_FALSE(on(1).empty());
  EXPECT_EQ(on(1).front(), &segments_.back());
  EXPECT_EQ(on(1).front()->rail, 1);
  EXPECT_EQ(on(0).front(), &segments_.front());
}

TEST_F(SchedulerTest, NothingIsTakenWithoutAClearGain) {
  up(0, 100e6);
  up(1, 100e6);
  // Rail 0 has 7 ms of work, 6 ms of it in flight. Rail 1 has room, with just under 6 ms of its
  // own. Taking 0.2 ms of the work would gain only a little.
  for (int i = 0; i < 35; ++i) scheduler_.enqueue(segment(20'000, 0), kAllRails);
  for (int i = 0; i < 29; ++i) scheduler_.enqueue(segment(20'000, 1), kAllRails);
  scheduler_.enqueue(segment(15'000, 1), kAllRails);
  scheduler_.pump();
  EXPECT_EQ(bytes_on(0), 600'000u);
  EXPECT_EQ(bytes_on(1), 595'000u);
  // With 7.4 ms of work on rail 0, rail 1 gains more than a millisecond.
  for (int i = 0; i < 2; ++i) scheduler_.enqueue(segment(20'000, 0), kAllRails);
  scheduler_.pump();
  EXPECT_EQ(bytes_on(1), 615'000u);
}

// A link writes while it is given a segment, so the links get their segments in turn.
TEST_F(SchedulerTest, LinksAreGivenSegmentsByTurns) {
  struct Link final : RecordingLink {
    std::vector<const OutSegment*>* order = nullptr;
    void submit(OutSegment& segment) override {
      order->push_back(&segment);
      RecordingLink::submit(segment);
    }
  };
  std::vector<const OutSegment*> order, by_turns;
  std::array<Link, 2> links;
  for (const Rail rail : {0, 1}) {
    links[static_cast<size_t>(rail)].order = &order;
    scheduler_.link_up(rail, &links[static_cast<size_t>(rail)], 100e6);
  }
  std::array<std::vector<const OutSegment*>, 2> queued;
  for (const Rail rail : {0, 1}) {
    for (int i = 0; i < 4 - rail; ++i) {
      queued[static_cast<size_t>(rail)].push_back(&segment(10'000, rail));
      scheduler_.enqueue(segments_.back(), kAllRails);
    }
  }
  scheduler_.pump();
  for (size_t i = 0; i < 3; ++i) {
    by_turns.push_back(queued[0][i]);
    by_turns.push_back(queued[1][i]);
  }
  by_turns.push_back(queued[0][3]);
  EXPECT_EQ(order, by_turns);
}

TEST_F(SchedulerTest, NothingIsTakenToARailThatIsNotAllowed) {
  up(0, 10e6);
  up(1, 100e6);
  for (int i = 0; i < 40; ++i) scheduler_.enqueue(segment(20'000, 0), rail_bit(0));
  scheduler_.pump();
  EXPECT_TRUE(on(1).empty());
}

TEST_F(SchedulerTest, ARailThatIsAvoidedGetsWhatNoOtherMayHave) {
  up(0, 100e6);
  up(1, 100e6);
  constexpr uint32_t kPart = 64 << 10;
  for (int i = 0; i < 40; ++i) scheduler_.enqueue(segment(kPart, 1), kAllRails);
  scheduler_.pump();
  const uint64_t submitted = bytes_on(1);
  EXPECT_LT(submitted, 20 * kPart);  // the rest is queued, or was stolen
  scheduler_.avoid(1, true);
  EXPECT_EQ(shares(1 << 20), (std::map<Rail, uint64_t>{{0, 1 << 20}}));
  scheduler_.enqueue(segment(kPart, 1), kAllRails);  // as if it had arrived on this rail
  for (int i = 0; i < 100; ++i) {
    ack_all(1);  // it is idle, and the other one is late
    ack_all(0);
    scheduler_.pump();
    EXPECT_EQ(bytes_on(1), 0u);
  }
  EXPECT_EQ(shares(1 << 20, rail_bit(1)), (std::map<Rail, uint64_t>{{1, 1 << 20}}));
  scheduler_.enqueue(segment(kPart), rail_bit(1));
  scheduler_.pump();
  EXPECT_EQ(bytes_on(1), kPart);
  scheduler_.avoid(1, false);
  EXPECT_EQ(shares(1 << 20).size(), 2u);
}

TEST_F(SchedulerTest, AvoidanceIsIgnoredIfAllRailsAreAvoided) {
  up(0, 100e6);
  up(1, 100e6);
  for (const Rail rail : {0, 1}) scheduler_.avoid(rail, true);
  EXPECT_EQ(shares(1 << 20).size(), 2u);
  for (const Rail rail : {0, 1}) scheduler_.enqueue(segment(1000, rail), kAllRails);
  scheduler_.pump();
  for (const Rail rail : {0, 1}) EXPECT_EQ(bytes_on(rail), 1000u);
}

TEST_F(SchedulerTest, ADeadLinkGivesBackWhatIsUnacknowledgedAndThenWhatIsQueued) {
  up(0, 100e6);
  std::vector<OutSegment*> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(&segment(10'000, 0));
    scheduler_.enqueue(*all.back(), kAllRails);
  }
  scheduler_.pump();
  ASSERT_GT(on(0).size(), 1u);
  ASSERT_LT(on(0).size(), all.size()) << "some are queued";
  OutSegment* done = on(0).front();
  on(0).pop_front();
  scheduler_.acknowledged(*done);
  std::deque<OutSegment*> orphans;
  scheduler_.link_down(0, orphans);
  EXPECT_EQ(std::vector<OutSegment*>(orphans.begin(), orphans.end()),
            std::vector<OutSegment*>(all.begin() + 1, all.end()));
  EXPECT_EQ(scheduler_.up(), 0u);
  EXPECT_EQ(scheduler_.waiting_since(0), 0);
}

TEST_F(SchedulerTest, WhatIsParkedGoesInOrderWhenALinkComes) {
  std::vector<OutSegment*> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(&segment(1000, i % 2 == 0 ? kAnyRail : 3));
    scheduler_.enqueue(*all.back(), kAllRails);
  }
  scheduler_.pump();
  up(2, 100e6);
  scheduler_.pump();
  EXPECT_EQ(std::vector<OutSegment*>(on(2).begin(), on(2).end()), all);
}

TEST_F(SchedulerTest, SegmentsAtTheFrontGoFirst) {
  up(0, 1e6);
  for (int i = 0; i < 5; ++i) scheduler_.enqueue(segment(16 << 10, 0), kAllRails);
  scheduler_.pump();
  ASSERT_EQ(on(0).size(), 1u);
  OutSegment& urgent = segment(100, 0);
  scheduler_.enqueue(urgent, kAllRails, /*at_front=*/true);
  ack_all(0);
  scheduler_.pump();
  EXPECT_EQ(on(0).front(), &urgent);
}

TEST_F(SchedulerTest, WaitingSinceTellsOfTheLastProgress) {
  up(0, 100e6);
  EXPECT_EQ(scheduler_.waiting_since(0), 0);
  scheduler_.enqueue(segment(5000, 0), kAllRails);
  scheduler_.enqueue(segment(5000, 0), kAllRails);
  scheduler_.pump();
  const Nanos first = scheduler_.waiting_since(0);
  EXPECT_GT(first, 0);
  clock_.advance(kSecond);
  EXPECT_EQ(scheduler_.waiting_since(0), first);
  OutSegment* done = on(0).front();
  on(0).pop_front();
  scheduler_.acknowledged(*done);
  EXPECT_GE(scheduler_.waiting_since(0), first + kSecond);
  ack_all(0);
  EXPECT_EQ(scheduler_.waiting_since(0), 0);
}

}  // namespace
}  // namespace nezha
