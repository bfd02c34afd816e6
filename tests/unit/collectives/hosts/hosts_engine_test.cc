// SPDX-License-Identifier: Apache-2.0
// The tasks of the hosts engine, over loopback; each rank is an endpoint and a thread of this
// process.
#include "collectives/hosts/hosts_engine.h"

#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/signature.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/hosts/documented_order.h"
#include "tests/unit/collectives/hosts/world.h"

namespace nezha {
namespace {

TEST(HostsEngine, NoRankIsDoneBeforeTheLastHasBegun) {
  std::vector<std::pair<ScheduleKind, size_t>> cases;
  for (const ScheduleKind schedule : kSchedules) {
    for (const size_t elements : {0, 1, 1000}) {
      // A ring over zero elements waits for nobody, and the engine does not choose it.
      if (schedule != ScheduleKind::kRing || elements > 0) cases.emplace_back(schedule, elements);
    }
  }
  for (const auto& [schedule, elements] : cases) {
    World world(4);
    std::vector<std::unique_ptr<RankRun<>>> runs;
    runs.reserve(4);
    for (int r = 0; r < 4; ++r) {
      runs.push_back(std::make_unique<RankRun<>>(world.rank(r), schedule, Work{elements, 1},
                                                 std::vector<Lane>{kWhole}));
    }
    const auto progress_of = [&](int r) -> Progress& { return world.rank(r).endpoint->progress(); };
    const auto start = [&](int r) {
      Progress::Guard guard(progress_of(r));
      runs[static_cast<size_t>(r)]->start();
    };
    const auto is_done = [&](int r, Nanos within) {
      Progress::Guard guard(progress_of(r));
      return progress_of(r).wait(guard, runs[static_cast<size_t>(r)]->waiter, now() + within);
    };
    for (int r = 0; r < 3; ++r) start(r);
    for (int r = 0; r < 3; ++r) EXPECT_FALSE(is_done(r, 50 * kMillisecond)) << "rank " << r;
    start(3);
    for (int r = 0; r < 4; ++r) EXPECT_TRUE(is_done(r, 60 * kSecond)) << "rank " << r;
    for (int r = 0; r < 4; ++r) {
      Progress::Guard guard(progress_of(r));
      runs[static_cast<size_t>(r)].reset();
      progress_of(r).run_deferred();
    }
  }
}

// Large enough for the ring's window and for several rounds of the other algorithms.
TEST(HostsEngine, Megabytes) {
  for (const int size : {3, 4}) {
    World world(size);
    on_all_ranks(world, [](Rank& rank) {
      uint32_t tag = 0;
      for (const ScheduleKind schedule : kSchedules) {
        allreduce(rank, schedule, {(1 << 20) + 1, ++tag}, {kWhole});
        allreduce(rank, schedule, {(1 << 18) + 7, ++tag, true}, {kWhole});
      }
    });
  }
}

void run_operations_of_different_tags(World& world) {
  on_all_ranks(world, [](Rank& rank) {
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&rank, t] {
        for (uint32_t i = 0; i < 10; ++i) {
          // Each rank uses a different order.
          const uint32_t tag = (t + static_cast<uint32_t>(rank.group.rank)) % 4;
          allreduce(rank, kSchedules[(tag + i) % std::size(kSchedules)],
                    {1000 * (tag + 1) + i, tag}, {kWhole});
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

TEST(HostsEngine, OperationsOfDifferentTagsRunAtOnceInAnyOrder) {
  World world(4);
  run_operations_of_different_tags(world);
}

TEST(HostsEngine, RailsMayHaveThreadsOfTheirOwn) {
  World world(4, allowed_cpus());
  run_operations_of_different_tags(world);
}

// Their threads sum long segments without the lock. No operation is in place: the thread sanitizer
// does not know that a result comes back from a peer only after what it overwrites was sent, and
// would report the two as a race.
TEST(HostsEngine, RailsThreadsSumAsCallersDo) {
  for (const int size : {2, 4}) {
    World world(size, allowed_cpus());
    on_all_ranks(world, [](Rank& rank) {
      uint32_t tag = 0;
      for (const ScheduleKind schedule : kSchedules) {
        allreduce(rank, schedule, {(1 << 19) + 1, ++tag}, {kWhole});
        allreduce(rank, schedule, {(1 << 18) + 7, ++tag, false, ReduceOperation::kAverage},
                  {kWhole});
      }
    });
  }
}

TEST(HostsEngine, RanksThatDisagreeAreTold) {
  for (const ScheduleKind schedule : kSchedules) {
    World world(2);
    on_all_ranks(world, [schedule](Rank& rank) {
      Progress& progress = rank.endpoint->progress();
      RankRun run(rank, schedule, {rank.group.rank == 0 ? size_t{100} : 101, 1}, {kWhole});
      Progress::Guard guard(progress);
      run.start();
      EXPECT_TRUE(progress.wait(guard, run.waiter, now() + 60 * kSecond));
      run.freeze();
      progress.run_deferred();
      EXPECT_TRUE(absl::IsFailedPrecondition(run.status)) << run.status;
      EXPECT_NE(run.status.message().find(absl::StrCat("rank ", 1 - rank.group.rank)),
                absl::string_view::npos);
    });
  }
}

// The engine keeps the last schedule. An operation that differs in anything must not use it.
TEST(HostsEngine, OperationsThatDifferHavePeersOfTheirOwn) {
  struct Case {
    Collective collective;
    ScheduleKind schedule;
    int root, rank, size;
  };
  const std::vector<Case> cases{
      {Collective::kAllreduce, ScheduleKind::kRecursiveDoubling, 0, 0, 4},
      {Collective::kAllreduce, ScheduleKind::kDirect, 0, 0, 4},
      {Collective::kAllreduce, ScheduleKind::kDirect, 0, 3, 4},
      {Collective::kAllreduce, ScheduleKind::kDirect, 0, 3, 8},
      {Collective::kBroadcast, ScheduleKind::kTree, 0, 3, 8},
      {Collective::kBroadcast, ScheduleKind::kTree, 3, 3, 8},
      {Collective::kReduce, ScheduleKind::kOrderedTree, 3, 3, 8},
      {Collective::kReduce, ScheduleKind::kTree, 3, 3, 8},
      {Collective::kBarrier, ScheduleKind::kDissemination, 0, 3, 8},
  };
  HostsEngine engine;
  std::vector<int> before;
  for (const Case& each : cases) {
    SCOPED_TRACE(&each - cases.data());
    Operation op;
    op.collective = each.collective;
    op.root = each.root;
    Group group;
    group.rank = each.rank;
    group.size = each.size;
    const std::vector<int> peers = engine.peers(group, op, {each.schedule});
    EXPECT_NE(peers, before);
    EXPECT_EQ(peers, HostsEngine().peers(group, op, {each.schedule}));
    EXPECT_EQ(peers, engine.peers(group, op, {each.schedule}));
    before = peers;
  }
}

// A peer that sends parts of elements breaks the protocol, and none of its data is used.
TEST(HostsEngine, SegmentsThatCutElementsAreRefused) {
  struct Mute final : Sender {
    void released(uint64_t, size_t) override {}
    void settled() override {}
    void failed(const absl::Status&) override {}
  } mute;
  constexpr size_t kElements = 100;
  const std::vector<std::byte> data(8);
  for (const ScheduleKind schedule : {ScheduleKind::kRing, ScheduleKind::kRecursiveDoubling}) {
    for (const auto& [offset, length] : {std::pair<uint64_t, size_t>{2, 4}, {4, 3}}) {
      SCOPED_TRACE(absl::StrCat("offset ", offset, ", length ", length));
      World world(2);
      Progress& progress = world.rank(0).endpoint->progress();
      RankRun run(world.rank(0), schedule, {kElements, 1}, {kWhole});
      {
        Progress::Guard guard(progress);
        run.start();
      }
      {
        Rank& rogue = world.rank(1);
        Progress::Guard guard(rogue.endpoint->progress());
        Operation op;
        op.elements = kElements;
        op.element_size = sizeof(float);
        op.tag = 1;
        EnginePlan plan;
        plan.schedule = schedule;
        Channel& channel = *rogue.group.channels[0];
        OutMessage* message = channel.open(
            message_info(rogue.group, {op, {}, 0}, plan, kElements * sizeof(float)), {}, &mute);
        channel.push(*message, offset, data.data(), length);
        rogue.endpoint->progress().run_deferred();
      }
      Progress::Guard guard(progress);
      const auto refused = [&] {
        uint64_t failures = 0;
        for (const Rail rail : {0, 1}) {
          failures += world.rank(0).endpoint->device(rail)->counters().failures;
        }
        return failures > 0;
      };
      for (int i = 0; i < 10'000 && !refused(); ++i) {
        Waiter tick;
        progress.wait(guard, tick, now() + kMillisecond);
      }
      EXPECT_TRUE(refused());
      EXPECT_FALSE(run.waiter.done());
      run.freeze();
      progress.run_deferred();
    }
  }
}

TEST(HostsEngine, ADeadRankFailsTheOthersTask) {
  for (const ScheduleKind schedule : kSchedules) {
    for (const size_t elements : {size_t{10}, size_t{200'000}}) {
      World world(3);
      on_all_ranks(world, [schedule](Rank& rank) {
        allreduce(rank, schedule, {1000, 1}, {kWhole});
      });
      world.kill(2);
      // Rank 0 is connected to rank 2 in all algorithms.
      Rank& rank = world.rank(0);
      Progress& progress = rank.endpoint->progress();
      RankRun run(rank, schedule, {elements, 3, true}, {kWhole});
      Progress::Guard guard(progress);
      run.start();
      EXPECT_TRUE(progress.wait(guard, run.waiter, now() + 60 * kSecond));
      run.freeze();
      progress.run_deferred();
      EXPECT_TRUE(absl::IsUnavailable(run.status)) << run.status;
      EXPECT_NE(run.status.message().find("rank 2"), absl::string_view::npos) << run.status;
    }
  }
}

// The function of rank 0 throws; with three ranks it throws in a partial sum. If `data_is_there`,
// the data arrives before rank 0 asks for it, and is reduced while the task starts.
void check_function_that_throws(ScheduleKind schedule, int size, bool data_is_there) {
  const ReduceFunction nothing = [](void*, const void*, const void*, size_t) {};
  const ReduceFunction throws = [](void*, const void*, const void*, size_t) {
    throw std::runtime_error("out of luck");
  };
  const std::vector<Lane> one_rail{{{}, rail_bit(0)}};
  World world(size);
  std::vector<std::unique_ptr<RankRun<>>> runs;
  for (int r = 0; r < size; ++r) {
    const Work work{.elements = 3000,
                    .tag = 1,
                    .operation = ReduceOperation::kCustom,
                    .function = r == 0 ? &throws : &nothing};
    runs.push_back(std::make_unique<RankRun<>>(world.rank(r), schedule, work, one_rail));
  }
  const auto start = [&](int rank) {
    Progress::Guard guard(world.rank(rank).endpoint->progress());
    runs[static_cast<size_t>(rank)]->start();
  };
  if (!data_is_there) start(0);
  for (int r = 1; r < size; ++r) start(r);
  if (data_is_there) {  // an operation that the same links carry later has ended
    on_all_ranks(world, [&](Rank& rank) { allreduce(rank, schedule, {1000, 2}, one_rail); });
    start(0);
  }
  for (int r = 0; r < size; ++r) {
    RankRun<>& run = *runs[static_cast<size_t>(r)];
    Progress& progress = world.rank(r).endpoint->progress();
    Progress::Guard guard(progress);
    if (r == 0) {
      EXPECT_TRUE(progress.wait(guard, run.waiter, now() + 60 * kSecond));
      EXPECT_TRUE(absl::IsInternal(run.status)) << run.status;
      EXPECT_NE(run.status.message().find("out of luck"), absl::string_view::npos);
    }
    run.freeze();
    progress.run_deferred();
  }
}

TEST(HostsEngine, AFunctionThatThrowsFailsTheTask) {
  for (const ScheduleKind schedule : kSchedules) {
    for (const int size : {2, 3}) {
      for (const bool data_is_there : {false, true}) {
        SCOPED_TRACE(absl::StrCat(schedule_name(schedule), ", ", size, " ranks, ",
                                  data_is_there ? "late" : "early"));
        check_function_that_throws(schedule, size, data_is_there);
      }
    }
  }
}

TEST(HostsEngine, AFrozenTaskLeavesTheMemoryAlone) {
  for (const ScheduleKind schedule : kSchedules) {
    World world(2);
    {
      Rank& rank = world.rank(0);
      Progress& progress = rank.endpoint->progress();
      auto run = std::make_unique<RankRun<>>(rank, schedule, Work{50'000, 1, true},
                                             std::vector<Lane>{kWhole});
      Progress::Guard guard(progress);
      run->start();
      run->freeze();
      EXPECT_EQ(run->status, absl::OkStatus()) << "the owner is not told";
      EXPECT_EQ(run->result()[7], input(0, 7, 1)) << "no final value, so still the input";
      run.reset();  // so that the address sanitizer sees a use after this
      progress.run_deferred();
    }
    Rank& other = world.rank(1);
    Progress& progress = other.endpoint->progress();
    RankRun run(other, schedule, {50'000, 1, true}, {kWhole});
    Progress::Guard guard(progress);
    run.start();
    EXPECT_FALSE(progress.wait(guard, run.waiter, now() + 20 * kMillisecond));
    run.freeze();
    progress.run_deferred();
  }
}

}  // namespace
}  // namespace nezha
