// SPDX-License-Identifier: Apache-2.0
#include "control/model_policy.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/programs/lane_simulator.h"
#include "gtest/gtest.h"
#include "tests/unit/control/simulated_networks.h"

namespace nezha {
namespace {

constexpr uint32_t kSeeds = 20;
// So many of those runs may not have settled yet: outliers hide what lanes take, above all where
// the start-ups of four lanes weigh as much as bytes.
constexpr int kLate = 6;

// Returns how much slower operations are now than the best possible, in an experiment or not. An
// experiment with short messages may last for 160 operations before it has won.
double excess_now(const SimulatedJob& job, uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return job.network.time(job.entry(bytes).allocation, size) / job.network.best_time(size) - 1;
}

TEST(ModelPolicy, IsNearTheBestAfterAHundredOperationsFromNothing) {
  for (const Network& network : networks()) {
    for (const uint64_t bytes : {kKiB, 16 * kKiB, 128 * kKiB, kMiB, 8 * kMiB, 64 * kMiB}) {
      int late = 0;
      std::string last;
      for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
        ModelPolicy* policy = nullptr;
        SimulatedJob job(network.lanes, policy, 0.01, seed);
        job.run(bytes, 100);
        // If start-up weighs as much as bytes, slopes show only once parts have changed.
        if (excess_now(job, bytes) < (bytes <= 16 * kKiB ? 0.06 : 0.03)) continue;
        ++late;
        last = job.balancer().table().history(size_class_of(bytes));
      }
      EXPECT_LE(late, kLate) << network.name << ", " << bytes << " bytes\n" << last;
    }
  }
}

// Slices begin with the rates that are known. No rail carries whole messages to learn its rate.
TEST(ModelPolicy, BeginsByTheRatesThatAreKnown) {
  std::vector<SimulatedLane> lanes;
  for (const double rate : {250, 100, 50, 25}) lanes.push_back(megabits(rate));
  lanes.push_back(stripes(1.1));
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    ModelPolicy* policy = nullptr;
    SimulatedJob job(lanes, policy, 0.01, seed);
    if (seed % 2 == 0) {  // the first operations end before the rates are known
      job.rates = {0, 0, 0, 0, 0};
      job.run(kMiB, 3);
    }
    job.rates = {32e6, 12e6, 6e6, 3.3e6, 0};
    job.run(kMiB, 50);
    EXPECT_LT(job.excess(kMiB), 0.05) << job.balancer().table().history(size_class_of(kMiB));
    for (const TableEntry::Change& it : job.entry(kMiB).history) {
      EXPECT_TRUE(it.allocation[0] < SliceBounds::kWhole) << "all on the fastest rail";
    }
  }
}

// Lanes of very different rates take by far the longest for equal parts, and buckets hide which of
// them is slow.
TEST(ModelPolicy, DividesFirstByWhatBurstsHaveShown) {
  std::vector<SimulatedLane> lanes;
  for (const double rate : {250, 100, 50, 25}) {
    lanes.push_back(megabits(rate));
    lanes.back().bucket = 22'000;
    lanes.back().least_paid = 0;
  }
  lanes.push_back(stripes(1.6));
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    ModelPolicy* policy = nullptr;
    SimulatedJob job(lanes, policy, 0.01, seed);
    job.rates = {0, 0, 0, 0, 0};
    job.tried = {30e6, 15e6, seed % 2 == 0 ? 8e6 : 5e6, 4e6, 0};
    job.run(128 * kKiB, 60);
    const std::string history = job.balancer().table().history(size_class_of(128 * kKiB));
    for (const TableEntry::Change& it : job.entry(128 * kKiB).history) {
      EXPECT_LT(it.allocation[0], SliceBounds::kWhole) << "all on the fastest rail\n" << history;
      EXPECT_LT(it.allocation[3], SliceBounds::kWhole / 5) << history;
    }
    EXPECT_GT(std::popcount(lanes_of(job.allocation(128 * kKiB))), 2) << history;
  }
}

// The ranks have just started, so a lane that is early may well be fast.
TEST(ModelPolicy, EarlyLaneLossesLeaveTheOthersWellDivided) {
  std::vector<SimulatedLane> lanes;
  for (const double rate : {250, 100, 50, 25}) lanes.push_back(megabits(rate));
  lanes.push_back(stripes(1.4));
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    ModelPolicy* policy = nullptr;
    SimulatedJob job(lanes, policy, 0.01, seed);
    job.rates = {0, 0, 0, 0, 0};
    job.run(128 * kKiB, 4);
    job.set_live(0b10111);
    job.run(128 * kKiB, 40);
    EXPECT_LT(job.excess(128 * kKiB), 0.05)
        << job.balancer().table().history(size_class_of(128 * kKiB));
  }
}

TEST(ModelPolicy, ShortMessagesConvergeToTheTimeOfTheFastestRail) {
  std::vector<SimulatedLane> lanes;
  for (const double rate : {100, 400, 1000, 200}) lanes.push_back(megabits(rate));
  lanes.push_back(stripes());
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    ModelPolicy* policy = nullptr;
    SimulatedJob job(lanes, policy, 0.02, seed);
    job.run(4 * kKiB, 100);
    EXPECT_LT(job.excess(4 * kKiB), 0.06)
        << job.balancer().table().history(size_class_of(4 * kKiB));
  }
}

// A fast rail may take longer to start than short messages take on another rail.
TEST(ModelPolicy, ShortMessagesGoByASlowerRailThatAnswersSooner) {
  SimulatedLane late = megabits(1000);
  late.start = 200'000;
  ModelPolicy* policy = nullptr;
  SimulatedJob job({late, megabits(400), stripes(1, 300'000)}, policy);
  job.run(4 * kKiB, 60);
  EXPECT_LT(job.excess(4 * kKiB), 0.05);
}

// Meanwhile an experiment may go on whose gain is less than the best one's. That costs at most a
// tenth of a second on average.
TEST(ModelPolicy, ShortMessagesReturnToARailThatWasObstructed) {
  int late = 0;
  double lost = 0;  // nanoseconds
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    ModelPolicy* policy = nullptr;
    SimulatedJob job({megabits(1000), megabits(400), stripes()}, policy, 0.01, seed);
    job.rates = {125e6, 50e6, 0};
    job.run(4 * kKiB, 250);
    EXPECT_LT(job.excess(4 * kKiB), 0.05);
    job.network.lanes[0].start += 200'000;
    const double best = job.network.best_time(4 * kKiB);
    for (int i = 0; i < 2'000; ++i) {
      job.run(4 * kKiB, 1);
      lost += job.took() - best;
    }
    // The job may be about to try something else, or to adopt what it tries.
    EXPECT_LT(std::min(excess_now(job, 4 * kKiB), job.excess(4 * kKiB)), 0.05)
        << job.balancer().table().history(12);
    job.network.lanes[0].start -= 200'000;
    job.run(4 * kKiB, 4'000);
    late += excess_now(job, 4 * kKiB) < 0.05 ? 0 : 1;
  }
  EXPECT_LT(lost / kSeeds, 100e6);
  EXPECT_LE(late, kLate);
}

TEST(ModelPolicy, DoesNotBelieveRatesThatItsFirstWindowRefutes) {
  for (const double slow : {12e6, 15e6, 18e6, 25e6, 40e6}) {
    for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
      ModelPolicy* policy = nullptr;
      SimulatedJob job({megabits(500), megabits(100), stripes(1.3)}, policy, 0.02, seed);
      job.rates = {60e6, slow, 0};
      job.run(kMiB, 100);
      EXPECT_LT(job.excess(kMiB), 0.05) << slow << "\n"
                                        << job.balancer().table().history(size_class_of(kMiB));
    }
  }
}

// A token bucket holds the little that a slow lane is given at first.
TEST(ModelPolicy, ALaneThatSeemsFastWithLittleIsGivenMoreInSteps) {
  const SimulatedLane slow = {
      .slope = 8000 / 2., .burst = 24. * kKiB, .burst_slope = 8, .is_stripes = false};
  for (const SimulatedLane& striped : {stripes(1), stripes(1.3)}) {
    for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
      ModelPolicy* policy = nullptr;
      SimulatedJob job({megabits(1000), slow, striped}, policy, 0.02, seed);
      job.rates = {125e6, 0.25e6, 0};
      if (seed % 2 == 0) job.run(8 * kKiB, 30);  // shows nothing about large ones
      job.run(4 * kMiB, 200);
      for (const TableEntry::Change& it : job.entry(4 * kMiB).history) {
        EXPECT_LT(it.allocation[1], SliceBounds::kWhole / 25)
            << job.balancer().table().history(size_class_of(4 * kMiB));
      }
    }
  }
}

TEST(ModelPolicy, IsColdBelowTheCrossoverAndConvergedAbove) {
  for (const uint64_t bytes : {8 * kKiB, 4 * kKiB, kKiB}) {
    ModelPolicy* policy = nullptr;
    SimulatedJob job({kGlex, kSharp}, policy);
    job.run(bytes, 60);
    EXPECT_EQ(job.entry(bytes).state, ClassState::kCold) << bytes;
    EXPECT_EQ(job.allocation(bytes), all_on(1, 2)) << bytes;
  }
  ModelPolicy* policy = nullptr;
  SimulatedJob job({kGlex, kSharp}, policy);
  job.run(8 * kMiB, 60);
  EXPECT_EQ(job.entry(8 * kMiB).state, ClassState::kConverged);
}

TEST(ModelPolicy, ANewClassStartsFromItsNeighbours) {
  ModelPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(400), megabits(200)}, policy);
  job.run(2 * kMiB, 40);
  job.run(4 * kMiB, 40);
  job.run(8 * kMiB, 1);
  EXPECT_LT(job.excess(8 * kMiB), 0.05);
  job.run(kMiB, 1);
  EXPECT_LT(job.excess(kMiB), 0.05);
}

// Cutting may leave a lane nothing of its part. Such a lane is not infinitely fast.
TEST(ModelPolicy, ResumesWithoutALaneThatTookNoPart) {
  ModelPolicy policy(2);
  const Allocation ran_by{(1 << 20) - 1, 1};
  policy.resume({23, 8 * kMiB, 1, {{67'000'000, 0}, {0, 0}}, 10}, {Algorithm::kAuto, ran_by},
                ClassState::kCold);
  EXPECT_EQ(policy.on_lanes(23, ran_by), all_on(0, 2));
}

TEST(ModelPolicy, OneLaneCarriesEverything) {
  for (const uint64_t bytes : {uint64_t{1}, kMiB}) {
    ModelPolicy* policy = nullptr;
    SimulatedJob job({megabits(1000)}, policy);
    job.run(bytes, 1000);
    EXPECT_EQ(job.entry(bytes).state, ClassState::kCold);
    EXPECT_EQ(job.entry(bytes).changes, 1);
  }
}

// Sizes within a class differ by up to a factor of two, which is neither a drift nor noise.
TEST(ModelPolicy, SizesThatVaryWithinAClassMoveNothing) {
  ModelPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(400)}, policy);
  job.run(9 * kMiB, 60);
  const int moves = job.moves(9 * kMiB);
  for (int i = 0; i < 1000; ++i) job.run((i / 70 % 2 == 0 ? 9 : 15) * kMiB, 1);
  for (int i = 0; i < 1000; ++i) job.run((i % 3 == 0 ? 15 : 9) * kMiB, 1);
  EXPECT_LE(job.moves(9 * kMiB) - moves, 2) << job.balancer().table().history(23);
  EXPECT_LT(job.excess(9 * kMiB), 0.03);
}

TEST(ModelPolicy, NoiseHardlyMovesWhatHasConverged) {
  struct Noisy {
    double noise;
    double most;  // excess of a division, since noise hides smaller ones
    int moves;
  };
  for (const auto& [noise, most, most_moves] :
       {Noisy{0.02, 0.03, 1}, {0.05, 0.05, 3}, {0.15, 0.25, 24}}) {
    for (const Network& network : networks()) {
      ModelPolicy* policy = nullptr;
      SimulatedJob job(network.lanes, policy, noise, 7);
      job.run(8 * kMiB, 400);
      const int moves = job.moves(8 * kMiB);
      for (int i = 0; i < 40; ++i) {
        job.run(8 * kMiB, 100);
        EXPECT_LT(job.excess(8 * kMiB), most) << network.name << " " << noise;
      }
      EXPECT_LE(job.moves(8 * kMiB) - moves, most_moves) << network.name << " " << noise << "\n"
                                                         << job.balancer().table().history(23);
    }
  }
}

TEST(ModelPolicy, ProbesTakeHardlyMoreThanAHundredthOfTheTime) {
  for (const Network& network : networks()) {
    for (const uint64_t bytes : {4 * kKiB, 256 * kKiB, 8 * kMiB}) {
      ModelPolicy* policy = nullptr;
      SimulatedJob job(network.lanes, policy, 0.05, 3);
      job.run(bytes, 100);
      job.run(bytes, 10'000);
      // An experiment may cost more than was predicted.
      EXPECT_LE(job.probing(), 1.02 * Budget::kPart) << network.name << " " << bytes;
      // A lane that is 20 times as slow for short messages is probed later.
      if (bytes > 4 * kKiB) {
        EXPECT_GT(job.probing(), 0) << network.name << " " << bytes;
      }
      EXPECT_LE(job.probing(), policy->probing());
    }
  }
}

TEST(ModelPolicy, AProbeFindsThatAnUnusedLaneBecameFast) {
  ModelPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(5)}, policy);
  job.run(8 * kMiB, 300);
  ASSERT_EQ(job.allocation(8 * kMiB), all_on(0, 2));
  job.network.lanes[1] = megabits(1000);
  job.run(8 * kMiB, 4000);
  EXPECT_LT(job.excess(8 * kMiB), 0.03) << job.balancer().table().history(23);
}

// The gain is less than one window can show, but it appears in each of several windows.
TEST(ModelPolicy, AProbeThatGoesOnBeingALittleBetterIsBelieved) {
  int left = 0;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    ModelPolicy* policy = nullptr;
    SimulatedJob job({megabits(1000), megabits(1000), stripes(0.96, 60'000)}, policy, 0.01, seed);
    job.run(kMiB, 200);
    ASSERT_EQ(lanes_of(job.allocation(kMiB)), 0b100U) << seed;
    for (const size_t lane : {0, 1}) job.network.lanes[lane].slope *= 0.93;
    job.network.lanes[2].slope /= 0.93;
    job.run(kMiB, 2'000);
    left += lanes_of(job.entry(kMiB).allocation) == 0b11U ? 1 : 0;
  }
  EXPECT_GE(left, 13);
}

// Ranks that have just started may not have a core each yet.
TEST(ModelPolicy, ForgetsThatLanesStartedSlowlySideBySide) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    ModelPolicy* policy = nullptr;
    SimulatedJob job({megabits(1000), megabits(1000)}, policy, 0.03, seed);
    for (SimulatedLane& lane : job.network.lanes) lane.start_beside = 300'000;
    job.run(32 * kKiB, 30);
    for (SimulatedLane& lane : job.network.lanes) lane.start_beside = 10'000;
    job.run(32 * kKiB, 1'500);
    const auto is_home = [&] { return !job.entry(32 * kKiB).is_probed(); };
    ASSERT_LT(job.operations_until(32 * kKiB, 200, is_home), 200);
    EXPECT_LT(excess_now(job, 32 * kKiB), 0.05) << job.balancer().table().history(15);
  }
}

// Ranks that have just started may share a core while the first lane is measured. Only a probe
// measures that lane again, which takes a second, because probes may cost a hundredth of the time.
TEST(ModelPolicy, ALaneThatWasSlowAtFirstIsMeasuredAgain) {
  ModelPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(400), megabits(200), megabits(100)}, policy);
  job.network.lanes[0].start = 300'000;
  job.run(4 * kKiB, 5);
  job.network.lanes[0].start = 50'000;
  job.run(4 * kKiB, 8'000);
  EXPECT_LT(job.excess(4 * kKiB), 0.05) << job.balancer().table().history(12);
}

// The machine may have been slow, and not the lane.
TEST(ModelPolicy, ALaneThatWasLeftInASlowSpellIsMeasuredAgain) {
  ModelPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(400)}, policy);
  job.run(4 * kKiB, 2'000);
  ASSERT_LT(job.excess(4 * kKiB), 0.05);
  job.network.lanes[0].start = 400'000;
  job.run(4 * kKiB, 200);
  ASSERT_EQ(job.allocation(4 * kKiB), all_on(1, 2)) << job.balancer().table().history(12);
  job.network.lanes[0].start = 50'000;
  job.run(4 * kKiB, 8'000);
  EXPECT_LT(job.excess(4 * kKiB), 0.05) << job.balancer().table().history(12);
}

// The other lane has lost so often that it would be tried much later.
TEST(ModelPolicy, ADriftEndsTheRestOfOtherLanes) {
  ModelPolicy* policy = nullptr;
  SimulatedJob job({kGlex, kSharp}, policy);
  job.run(4 * kKiB, 40'000);
  ASSERT_EQ(job.allocation(4 * kKiB), all_on(1, 2)) << job.balancer().table().history(12);
  job.network.lanes[1].start *= 20;
  job.run(4 * kKiB, 200);
  EXPECT_EQ(job.allocation(4 * kKiB), all_on(0, 2)) << job.balancer().table().history(12);
}

TEST(ModelPolicy, SlowSpellsDoNotRaiseTheTimeForProbes) {
  ModelPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(400), megabits(200), megabits(100)}, policy);
  for (int spell = 0; spell < 50; ++spell) {
    job.network.lanes[0].start = 50'000;
    job.run(4 * kKiB, 300);
    job.network.lanes[0].start = 120'000;
    job.run(4 * kKiB, 40);
  }
  EXPECT_LE(policy->probing(), 0.02) << job.balancer().table().history(12);
}

TEST(ModelPolicy, ShortMessagesAreProbedEverMoreRarely) {
  ModelPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(1000)}, policy);
  const auto changes = [&](int operations) {
    const uint64_t before = job.entry(4 * kKiB).changes;
    job.run(4 * kKiB, operations);
    return job.entry(4 * kKiB).changes - before;
  };
  job.run(4 * kKiB, 60);
  const uint64_t early = changes(1'000);
  const uint64_t late = changes(4'000);
  EXPECT_GT(late, 0) << "no lane is probed any more";
  EXPECT_LE(late, early) << job.balancer().table().history(12);
}

// Probes give lanes the smallest parts, which are too short for slices to be cut.
TEST(ModelPolicy, AProbeThatIsTooShortToBeCutDoesNotHoldForLargerParts) {
  ModelPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(5)}, policy);
  job.network.least_slice = 1024;
  job.run(64 * kKiB, 3000);
  ASSERT_EQ(job.allocation(64 * kKiB), all_on(0, 2));
  ASSERT_GT(job.probing(), 0);
  job.network.lanes[1] = megabits(1000);
  job.run(64 * kKiB, 10'000);
  EXPECT_LT(job.excess(64 * kKiB), 0.05) << job.balancer().table().history(16);
}

TEST(ModelPolicy, ADeadLaneCarriesNothingAndIsTakenBack) {
  for (const uint64_t bytes : {kKiB, 8 * kMiB}) {
    for (const Network& network : networks()) {
      ModelPolicy* policy = nullptr;
      SimulatedJob job(network.lanes, policy);
      job.run(bytes, 60);
      const int lanes = static_cast<int>(network.lanes.size());
      for (int dead = 0; dead < lanes; ++dead) {
        job.set_live(all_lanes(lanes) & ~lane_bit(dead));
        EXPECT_EQ(job.allocation(bytes)[static_cast<size_t>(dead)], 0);
        job.run(bytes, 30);
        EXPECT_EQ(job.allocation(bytes)[static_cast<size_t>(dead)], 0);
        EXPECT_LT(job.excess(bytes), 0.06) << network.name << " without " << dead << "\n"
                                           << job.balancer().table().history(size_class_of(bytes));
        job.set_live(all_lanes(lanes));
        job.run(bytes, 30);
        EXPECT_LT(job.excess(bytes), 0.06) << network.name << " with " << dead << " again\n"
                                           << job.balancer().table().history(size_class_of(bytes));
      }
    }
  }
}

}  // namespace
}  // namespace nezha
