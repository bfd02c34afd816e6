// SPDX-License-Identifier: Apache-2.0
// In most tests rank 0 takes part in a recursive doubling, and the test plays its peers.
#include "collectives/hosts/scheduled_task.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/log.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/hosts/documented_order.h"
#include "tests/unit/collectives/hosts/parts.h"
#include "tests/unit/collectives/hosts/played_rank.h"
#include "tests/unit/collectives/hosts/world.h"

namespace nezha {
namespace {

constexpr size_t kTaskRound = 1 << 20;  // bytes of the vector in each round

class ScheduledTaskTest : public ::testing::Test {
 protected:
  ScheduledTaskTest() { log().set_level(spdlog::level::err); }  // the tests break links on purpose

  // Makes the task of rank 0 of two or four, and its peers. The last one sends the sum of all
  // ranks that rank 0 does not hear of otherwise.
  void make(int size, const Work& work, const Lane& lane = kWhole) {
    work_ = work;
    world_ = std::make_unique<World>(size);
    drive_ = std::make_unique<Drive>(*world_);
    run_ = std::make_unique<RankRun<>>(world_->rank(0), kSchedule, work, std::vector<Lane>{lane});
    for (int r = 1; r < size; r *= 2) {
      ASSERT_TRUE(drive_->connect(0, r));
      peers_[r] = std::make_unique<PlayedRank>(world_->rank(r), 0, kSchedule, work);
      const auto own = inputs<float>(r, work);
      peers_[r]->set_contents(r == 1 ? own : sum(own, inputs<float>(r + 1, work)));
    }
  }
  static std::vector<float> sum(std::vector<float> a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  }
  std::vector<float> sum_of_first_step() const {
    return sum(inputs<float>(0, work_), inputs<float>(1, work_));
  }
  PlayedRank& peer(int r) { return *peers_.at(r); }
  // The peer sends what it has for these rounds. No segment belongs to two of them.
  void push_rounds(int r, size_t begin, size_t end) {
    for (; begin < end; ++begin) peer(r).push(begin * kTaskRound, kTaskRound);
  }
  Channel& channel(int r) { return *world_->rank(0).group.channels[static_cast<size_t>(r)]; }
  size_t bytes() const { return work_.elements * sizeof(float); }
  bool describes(const std::string& words) const {
    return run_->task().describe().find(words) != std::string::npos;
  }
  Task::State state() const { return run_->task().poll(); }
  void expect_result() {
    ASSERT_TRUE(drive_->until([&] { return run_->waiter.done(); }));
    EXPECT_EQ(state(), Task::State::kDone) << run_->status;
    EXPECT_EQ(run_->result(), expected<float>(kSchedule, work_.operation, world_->size(),
                                              work_.elements, work_.tag));
  }

  static constexpr auto kSchedule = ScheduleKind::kRecursiveDoubling;
  Work work_;
  std::unique_ptr<World> world_;
  std::unique_ptr<Drive> drive_;
  std::unique_ptr<RankRun<>> run_;
  std::map<int, std::unique_ptr<PlayedRank>> peers_;
};

TEST_F(ScheduledTaskTest, SaysWhichStepItIsInAndWhomItWaitsFor) {
  ASSERT_NO_FATAL_FAILURE(make(4, {.elements = 1000, .tag = 1}));
  run_->start();
  EXPECT_TRUE(describes("recursive-doubling, step 1 of 2: received 0 of 4000 bytes from rank 1 ("));
  peer(1).push(0, 2000);
  ASSERT_TRUE(drive_->until(
      [&] { return describes("step 1 of 2: received 2000 of 4000 bytes from rank 1 ("); }));
  peer(1).push(2000, 2000);
  ASSERT_TRUE(drive_->until(
      [&] { return describes("step 2 of 2: received 0 of 4000 bytes from rank 2 ("); }));
  EXPECT_FALSE(describes("rank 1")) << "it waits for that rank no more";
  EXPECT_EQ(state(), Task::State::kRunning);
  peer(2).push(0, bytes());
  expect_result();
}

// In the first step rank 0 sums up its third of the vector, of which each peer sends it an operand.
TEST(ScheduledTask, NamesOnlyThePeersThatItStillWaitsFor) {
  const Work work{.elements = 48, .tag = 1};
  World world(3);
  Drive drive(world);
  RankRun<> run(world.rank(0), ScheduleKind::kDirect, work, {kWhole});
  PlayedRank peer(world.rank(2), 0, ScheduleKind::kDirect, work);
  const auto names = [&](const std::string& rank) {
    return run.task().describe().find("0 of 64 bytes from " + rank) != std::string::npos;
  };
  run.start();
  EXPECT_TRUE(names("rank 1") && names("rank 2"));
  peer.set_contents(std::vector<float>(16));
  peer.push(0, 64);
  ASSERT_TRUE(
      drive.until([&] { return run.task().describe().find("rank 2") == std::string::npos; }));
  EXPECT_TRUE(names("rank 1"));
}

TEST_F(ScheduledTaskTest, DataOfALaterStepMayComeFirst) {
  ASSERT_NO_FATAL_FAILURE(make(4, {.elements = 1000, .tag = 1}));
  peer(2).receive(bytes());
  run_->start();
  const uint64_t before = channel(2).consumed();
  peer(2).push(0, bytes());
  ASSERT_TRUE(drive_->until([&] { return channel(2).consumed() > before; }));
  drive_->rest();
  EXPECT_TRUE(describes("step 1 of 2"));
  EXPECT_EQ(peer(2).received(), 0u) << "a step sends nothing before the one before it is complete";
  peer(1).push(0, bytes());
  expect_result();
  ASSERT_TRUE(drive_->until([&] { return peer(2).received() == bytes(); }));
  EXPECT_EQ(peer(2).message<float>(), sum_of_first_step());
}

TEST_F(ScheduledTaskTest, EachRoundGoesThroughTheStepsByItself) {
  ASSERT_NO_FATAL_FAILURE(make(4, {.elements = 2 * kTaskRound / sizeof(float), .tag = 1}));
  for (const int r : {1, 2}) peer(r).receive(bytes());
  run_->start();
  push_rounds(1, 1, 2);
  ASSERT_TRUE(drive_->until([&] { return peer(2).received() == kTaskRound; }));
  for (const PlayedRank::Segment& each : peer(2).came()) EXPECT_GE(each.offset, kTaskRound);
  EXPECT_TRUE(describes("step 1 of 2: received 1048576 of 2097152 bytes from rank 1 ("));
  push_rounds(2, 0, 2);
  for (const size_t offset : {kTaskRound / 2, size_t{0}}) peer(1).push(offset, kTaskRound / 2);
  expect_result();
  ASSERT_TRUE(drive_->until([&] { return peer(2).received() == bytes(); }));
  EXPECT_EQ(peer(2).message<float>(), sum_of_first_step());
}

TEST_F(ScheduledTaskTest, AtMostFourRoundsAreAtWork) {
  ASSERT_NO_FATAL_FAILURE(make(2, {.elements = 6 * kTaskRound / sizeof(float), .tag = 1}));
  peer(1).receive(bytes());
  run_->start();
  for (const size_t rounds : {4, 5}) {
    ASSERT_TRUE(drive_->until([&] { return peer(1).received() >= rounds * kTaskRound; }));
    drive_->rest();
    EXPECT_EQ(peer(1).received(), rounds * kTaskRound);
    push_rounds(1, rounds - 4, rounds - 3);
  }
  push_rounds(1, 2, 6);
  expect_result();
  ASSERT_TRUE(drive_->until([&] { return peer(1).received() == bytes(); }));
  EXPECT_EQ(peer(1).message<float>(), inputs<float>(0, work_));
}

// A correct peer is never so far ahead.
TEST_F(ScheduledTaskTest, RefusesWhatWouldTakeScratchForMoreRounds) {
  ASSERT_NO_FATAL_FAILURE(make(2, {.elements = 9 * kTaskRound / sizeof(float), .tag = 1}));
  const RailCounters& rail = world_->rank(0).endpoint->device(1)->counters();
  run_->start();
  const uint64_t before = channel(1).consumed();
  peer(1).push(7 * kTaskRound, sizeof(float), 1);
  ASSERT_TRUE(drive_->until([&] { return channel(1).consumed() > before; }));
  EXPECT_EQ(rail.failures, 0u);
  peer(1).push(8 * kTaskRound, sizeof(float), 1);
  ASSERT_TRUE(drive_->until([&] { return rail.failures > 0; }));
  EXPECT_NE(rail.last_failure.find("that no correct peer sends"), std::string::npos)
      << rail.last_failure;
  EXPECT_EQ(state(), Task::State::kRunning) << "only the link has failed";
}

// The peer's data is there before the task starts, so that the task overwrites its input before the
// peer has read anything.
TEST_F(ScheduledTaskTest, WhatASumOverwritesIsSentAgainAsItWas) {
  ASSERT_NO_FATAL_FAILURE(
      make(2, {.elements = 1000, .tag = 1, .in_place = true}, {{}, rail_bit(0)}));
  peer(1).push(0, bytes());
  ASSERT_TRUE(drive_->until([&] {
    return channel(1).waiting_since(world_->rank(0).group.context, work_.tag).has_value();
  }));
  run_->start();
  ASSERT_TRUE(drive_->until_at(0, [&] { return run_->waiter.done(); }));
  expect_result();
  peer(1).channel().on_carrier(0, false);
  peer(1).receive(bytes());
  ASSERT_TRUE(drive_->until([&] { return peer(1).received() == bytes(); }));
  EXPECT_EQ(peer(1).message<float>(), inputs<float>(0, work_));
}

TEST_F(ScheduledTaskTest, IsDoneOnceItsPeersHaveWhatIsTooLongToCopy) {
  ASSERT_NO_FATAL_FAILURE(make(2, {.elements = 1 << 20, .tag = 1}));
  run_->start();
  push_rounds(1, 0, 4);
  ASSERT_TRUE(drive_->until(
      [&] { return describes("recursive-doubling: waiting for rank 1 to acknowledge ("); }));
  drive_->rest();
  EXPECT_EQ(state(), Task::State::kRunning);
  peer(1).receive(bytes());
  expect_result();
  EXPECT_EQ(peer(1).received(), bytes());
}

// A rank can be done before others have started, unlike in an allreduce.
TEST(ScheduledTask, ARankMayLeaveBeforeItsReceiversStart) {
  World world(3);
  on_all_ranks(world, [](Rank& rank) {  // connects all ranks
    allreduce(rank, ScheduleKind::kDirect, {.elements = 1000}, {kWhole});
  });
  Parts parts(world);
  const Work work{.elements = 100, .tag = 1, .collective = Collective::kReduce, .root = 0};
  parts.start(1, ScheduleKind::kTree, work);
  parts.start(2, ScheduleKind::kTree, work);
  ASSERT_TRUE(parts.is_over(2));
  parts.end(2);
  world.kill(2);
  // Waits until rank 0 knows that rank 2 has left.
  Rank& root = world.rank(0);
  const Nanos deadline = now() + 60 * kSecond;
  for (bool linked = true; linked && now() < deadline;) {
    Waiter tick;
    Progress::Guard guard(root.endpoint->progress());
    root.endpoint->progress().wait(guard, tick, now() + kMillisecond);
    linked = root.group.channels[2]->up() != 0;
  }
  const RankRun<>& its = parts.start(0, ScheduleKind::kTree, work);
  EXPECT_TRUE(parts.is_over(0));
  EXPECT_TRUE(its.status.ok()) << its.status;
  EXPECT_TRUE(parts.is_over(1));
}

// Rank 1 calls another operation than rank 0, and rank 2 calls the same one as rank 1.
TEST_F(ScheduledTaskTest, PeersOfLaterStepsHearWhichOperationHasFailed) {
  const Work others{.elements = 101, .tag = 1};
  ASSERT_NO_FATAL_FAILURE(make(4, {.elements = 100, .tag = 1}));
  run_->start();
  PlayedRank first(world_->rank(1), 0, kSchedule, others);
  first.set_contents(inputs<float>(1, others));
  first.push(0, 404);
  ASSERT_TRUE(drive_->until([&] { return run_->waiter.done(); }));
  EXPECT_EQ(state(), Task::State::kFailed);
  EXPECT_TRUE(absl::IsFailedPrecondition(run_->status)) << run_->status;
  EXPECT_NE(run_->status.message().find("rank 1"), absl::string_view::npos) << run_->status;
  PlayedRank later(world_->rank(2), 0, kSchedule, others);
  later.receive(404);
  ASSERT_TRUE(drive_->until([&] { return later.mismatch().has_value(); }));
  EXPECT_EQ(later.mismatch()->total, bytes());
}

}  // namespace
}  // namespace nezha
