// SPDX-License-Identifier: Apache-2.0
// Rings over loopback.
#include "collectives/hosts/ring.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/hosts/course.h"
#include "common/log.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/hosts/documented_order.h"
#include "tests/unit/collectives/hosts/parts.h"
#include "tests/unit/collectives/hosts/played_rank.h"
#include "tests/unit/collectives/hosts/played_ring.h"
#include "tests/unit/collectives/hosts/world.h"
#include "tests/unit/collectives/reference.h"
#include "transport/wire.h"

namespace nezha {
namespace {

class RingTest : public PlayedRing {};

// ---- Rails -------------------------------------------------------------------------------------

TEST_F(RingTest, PassesSegmentsOnByTheRailThatTheyCameBy) {
  ASSERT_NO_FATAL_FAILURE(start(kRingSlow));
  for (const Rail rail : {1, 0, 0, 1}) {
    const size_t place = kChunk + sent_;
    send_own(kRingPart, rail);
    ASSERT_TRUE(drive_.until([&] { return neighbour_.received() == kRingBegun + sent_; }));
    EXPECT_EQ(neighbour_.received_by(rail, place, place + kRingPart), kRingPart);
  }
  finish();
}

TEST_F(RingTest, ReplacesWhatComesAroundOnTheSameRailIfRailsAreFast) {
  ASSERT_NO_FATAL_FAILURE(start(kRingFast));
  for (const Rail rail : {1, 0, 0, 1}) {
    const size_t before = begun();
    send_back(kRingPart, rail);
    ASSERT_TRUE(drive_.until([&] { return begun() > before; }));
    EXPECT_EQ(begun_by(rail, before), kRingPart);
    EXPECT_EQ(begun(), before + kRingPart);
  }
  finish();
}

TEST_F(RingTest, BeginsWholeSegmentsOverAllRailsIfRailsAreSlow) {
  constexpr size_t kNotEnough = 100 << 10;  // the window still has no room for a segment
  ASSERT_NO_FATAL_FAILURE(start(kRingSlow));
  send_back(kNotEnough, 1);
  drive_.rest();
  EXPECT_EQ(begun(), kRingBegun);
  send_back(kNotEnough, 1);
  ASSERT_TRUE(drive_.until([&] { return begun() == kRingBegun + kLongSegment; }));
  for (const Rail rail : {0, 1}) EXPECT_GT(begun_by(rail, kRingBegun), 0u) << "rail " << rail;
  finish();
}

// Nothing comes around by a rail that was down, so it must be given something that came around by
// another.
TEST_F(RingTest, ARailThatHasComeBackIsGivenWorkAgain) {
  ASSERT_NO_FATAL_FAILURE(start(kRingFast));
  send_back(kRingPart, 0);  // this is there before the rail can be back
  channel(0).on_carrier(1, false);
  ASSERT_TRUE(drive_.until_at(0, [&] {
    const std::string received = absl::StrCat("received ", kRingPart, " of ");
    return run_.task().describe().find(received) != std::string::npos;
  }));
  ASSERT_TRUE(drive_.until([&] { return channel(0).up() == 3 && channel(1).up() == 3; }));
  send_back(kRingBegun - kRingPart, 0);
  ASSERT_TRUE(drive_.until([&] { return begun() == 2 * kRingBegun; }));
  EXPECT_GT(begun_by(1, kRingBegun), 0u);
  finish();
}

TEST(Ring, ARailThatDiesInTheMiddleCostsNothing) {
  log().set_level(spdlog::level::err);  // the log warns of the lost link
  const Work work{.elements = 3 << 18, .tag = 1};
  World world(3);
  Drive drive(world);
  std::vector<std::unique_ptr<RankRun<>>> runs;
  for (int r = 0; r < 3; ++r) {
    runs.push_back(std::make_unique<RankRun<>>(world.rank(r), ScheduleKind::kRing, work,
                                               std::vector<Lane>{kWhole}));
  }
  for (const size_t r : {size_t{0}, size_t{1}}) runs[r]->start();
  Channel& channel = *world.rank(0).group.channels[1];
  ASSERT_TRUE(drive.until([&] {
    const bool has_begun = runs[1]->task().describe().find("received 0 of") == std::string::npos;
    return has_begun && channel.up() == 3;
  }));
  channel.on_carrier(1, false);
  runs[2]->start();  // nothing could end without it
  ASSERT_TRUE(drive.until([&] {
    return std::all_of(runs.begin(), runs.end(), [](const auto& it) { return it->waiter.done(); });
  }));
  const auto wanted = by_ring<float>(ReduceOperation::kSum, 3, work.elements, work.tag);
  for (const auto& it : runs) {
    EXPECT_TRUE(it->status.ok()) << it->status;
    EXPECT_EQ(reference::first_difference(it->result(), wanted), work.elements);
  }
}

// ---- The window --------------------------------------------------------------------------------

// They are longer than the window of a ring, so ranks begin more as their own parts come around.
// The first operation shows that rails over loopback are fast.
TEST(Ring, LongOperationsGoOnAsPartsComeAround) {
  for (const Cpus& cpus : {Cpus{}, allowed_cpus()}) {
    World world(2, cpus);
    on_all_ranks(world, [](Rank& rank) {
      for (const uint32_t tag : {1, 2, 3}) {
        allreduce(rank, ScheduleKind::kRing, {(1 << 21) + 7, tag}, {kWhole});
      }
    });
  }
}

TEST(Ring, ARootBeginsMoreForEachToken) {
  constexpr size_t kVector = 4 << 20;
  constexpr size_t kTokens = kVector / Course::kTokenBytes;
  constexpr size_t kFirst = 8 * kLongSegment;  // the window is 2 MiB
  const Work work{
      .elements = kVector / sizeof(float), .tag = 1, .collective = Collective::kBroadcast};
  World world(2);
  Drive drive(world);
  RankRun<> root(world.rank(0), ScheduleKind::kChain, work, {kWhole});
  PlayedRank last(world.rank(1), 0, ScheduleKind::kChain, work);
  last.set_contents(std::vector<std::byte>(kTokens));
  ASSERT_TRUE(drive.connect(0, 1));
  last.receive(kVector);
  root.start();
  for (size_t segments = 0; segments < 2; ++segments) {
    const size_t begun = kFirst + segments * kLongSegment;
    ASSERT_TRUE(drive.until([&] { return last.received() >= begun; }));
    drive.rest();
    EXPECT_EQ(last.received(), begun);
    last.push(segments, 1);
  }
  last.push(2, kTokens - 2);
  ASSERT_TRUE(drive.until([&] { return root.waiter.done() && last.received() == kVector; }));
  EXPECT_EQ(last.message<float>(), inputs<float>(0, work));
}

// However late a rank is, the ranks before it hold no more partial sums than the window allows.
TEST(Ring, ALateRankCostsTheOthersABoundedAmountOfScratch) {
  constexpr auto kChain = ScheduleKind::kChain;
  constexpr size_t kElements = 16 << 20;
  World world(3);
  Parts parts(world);
  const Work work{.elements = kElements, .tag = 1, .collective = Collective::kReduce, .root = 2};
  const Operation op{.collective = Collective::kReduce,
                     .root = 2,
                     .elements = kElements,
                     .element_size = sizeof(float)};
  const size_t window = course_of(op, {}, 0, 3).window;
  ASSERT_LT(8 * window, op.bytes()) << "too little to tell";
  parts.start(0, kChain, work);
  parts.start(1, kChain, work);
  const auto scratch = [&] { return world.rank(1).group.pool->bytes_in_use(); };
  const Nanos deadline = now() + 60 * kSecond;
  // The rest of the window is in flight, or the late rank holds it unasked.
  const size_t begun = window - wire::kInitialCredit;
  while (scratch() < begun && now() < deadline) parts.is_over(1, kMillisecond);
  EXPECT_GE(scratch(), begun) << "it never begins";
  for (int i = 0; i < 100; ++i) {  // enough time for all of it to arrive if nothing limited it
    EXPECT_FALSE(parts.is_over(1, 2 * kMillisecond));
    ASSERT_LE(scratch(), 3 * window);  // segments take up to twice their size
  }
  parts.start(2, kChain, work);
  for (int r = 0; r < 3; ++r) EXPECT_TRUE(parts.is_over(r));
}

// ---- The end -----------------------------------------------------------------------------------

// Rank 2 broadcasts, and rank 0 passes on more to rank 1 than rank 1 takes without asking for it.
TEST(Ring, IsDoneOnceItsNeighbourHasWhatIsTooLongToCopy) {
  const Work work{.elements = 1 << 20, .tag = 1, .collective = Collective::kBroadcast, .root = 2};
  const size_t bytes = work.elements * sizeof(float);
  World world(3);
  Drive drive(world);
  RankRun<> run(world.rank(0), ScheduleKind::kChain, work, {kWhole});
  PlayedRank left(world.rank(2), 0, ScheduleKind::kChain, work);
  PlayedRank right(world.rank(1), 0, ScheduleKind::kChain, work);
  const auto describes = [&](const std::string& words) {
    return run.task().describe().find(words) != std::string::npos;
  };
  run.start();
  EXPECT_TRUE(describes("ring: received 0 of 4194304 bytes from rank 2 ("));
  EXPECT_TRUE(describes("; sending to rank 1 ("));
  left.set_contents(inputs<float>(2, work));
  left.push(0, bytes);
  ASSERT_TRUE(drive.until([&] { return describes("received 4194304 of 4194304 bytes"); }));
  drive.rest();
  EXPECT_TRUE(describes("; waiting for rank 1 to acknowledge ("));
  EXPECT_EQ(run.task().poll(), Task::State::kRunning);
  right.receive(bytes);
  ASSERT_TRUE(drive.until([&] { return run.waiter.done() && right.received() == bytes; }));
  EXPECT_EQ(run.task().poll(), Task::State::kDone);
  EXPECT_EQ(run.result(), inputs<float>(2, work));
  EXPECT_EQ(right.message<float>(), inputs<float>(2, work));
}

TEST_F(RingTest, RefusesASegmentThatBelongsToTwoChunks) {
  ASSERT_NO_FATAL_FAILURE(start(kRingSlow));
  neighbour_.push(kChunk - 8, 16, 1);
  const RailCounters& rail = world_.rank(0).endpoint->device(1)->counters();
  ASSERT_TRUE(drive_.until([&] { return rail.failures > 0; }));
  EXPECT_NE(rail.last_failure.find("that no correct peer sends"), std::string::npos)
      << rail.last_failure;
  EXPECT_EQ(run_.task().poll(), Task::State::kRunning) << "only the link has failed";
}

}  // namespace
}  // namespace nezha
