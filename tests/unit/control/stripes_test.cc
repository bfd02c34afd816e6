// SPDX-License-Identifier: Apache-2.0
// The model with a lane of stripes beside lanes of slices, over the same rails.
#include <cstdint>
#include <string>
#include <vector>

#include "bench/programs/lane_simulator.h"
#include "control/model_policy.h"
#include "gtest/gtest.h"
#include "tests/unit/control/simulated_networks.h"

namespace nezha {
namespace {

std::vector<SimulatedLane> with(std::vector<SimulatedLane> lanes, const SimulatedLane& stripes) {
  lanes.push_back(stripes);
  return lanes;
}

TEST(Stripes, AreWhatLongMessagesStartWith) {
  EXPECT_EQ(unlearned(0b111, 0b100, 3), all_on(2, 3));
  EXPECT_EQ(unlearned(0b011, 0b100, 3), equal_parts(0b011, 3)) << "stripes are dead";
  EXPECT_EQ(unlearned(0b111, 0, 3), equal_parts(0b111, 3));
  ModelPolicy policy(3, 0b100);
  EXPECT_EQ(policy.open(23), all_on(2, 3));
  EXPECT_EQ(policy.open(10), all_on(0, 3)) << "too short to gain by stripes";
}

TEST(Stripes, OrSlicesAreNearTheBestAfterThirtyOperationsFromNothing) {
  for (const Network& network : networks()) {
    for (const uint64_t bytes : {kKiB, 16 * kKiB, 128 * kKiB, kMiB, 8 * kMiB, 64 * kMiB}) {
      int late = 0;
      std::string last;
      for (const double factor : {0.9, 1.0, 1.2}) {
        for (uint32_t seed = 1; seed <= 8; ++seed) {
          ModelPolicy* policy = nullptr;
          SimulatedJob job(with(network.lanes, stripes(factor)), policy, 0.01, seed);
          job.run(bytes, 30);
          if (job.excess(bytes) < (bytes <= 16 * kKiB ? 0.06 : 0.03)) continue;
          ++late;
          last = job.balancer().table().history(size_class_of(bytes));
        }
      }
      EXPECT_LE(late, 6) << "of 24, since outliers hide what lanes take: " << network.name << ", "
                         << bytes << " bytes\n"
                         << last;
    }
  }
}

// Not all of their sets are looked at.
TEST(Stripes, OrSlicesOfEightRailsAreNearTheBestToo) {
  for (const uint64_t bytes : {kMiB, 8 * kMiB, 64 * kMiB}) {
    for (const int slow : {0, 1, 3, 4}) {
      std::vector<SimulatedLane> lanes;
      for (int lane = 0; lane < 8; ++lane) lanes.push_back(megabits(lane < slow ? 100 : 1000));
      ModelPolicy* policy = nullptr;
      SimulatedJob job(with(lanes, stripes(1.1)), policy, 0.01);
      job.run(bytes, 60);
      EXPECT_LT(job.excess(bytes), 0.05) << slow << " slow rails, " << bytes << " bytes\n"
                                         << job.balancer().table().history(size_class_of(bytes));
    }
  }
}

// As long as makes no difference, large messages go by stripes, and stay there.
TEST(Stripes, ArePreferredForLargeMessages) {
  int preferred = 0;
  for (const double factor : {0.98, 1.0, 1.01}) {
    for (uint32_t seed = 1; seed <= 10; ++seed) {
      ModelPolicy* policy = nullptr;
      SimulatedJob job(with({megabits(1000), megabits(400)}, stripes(factor)), policy, 0.02, seed);
      job.run(64 * kMiB, 400);
      preferred += job.allocation(64 * kMiB) == all_on(2, 3) ? 1 : 0;
      const int moves = job.moves(64 * kMiB);
      job.run(64 * kMiB, 4000);
      EXPECT_LE(job.moves(64 * kMiB) - moves, 2) << job.balancer().table().history(26);
    }
  }
  EXPECT_GE(preferred, 24) << "of 30: outliers may hide what they take";
}

TEST(Stripes, AndSlicesThatDifferByAsMuchAsNoiseTakeNoTurns) {
  for (const double factor : {1.015, 1.02, 1.025, 1.03}) {
    for (uint32_t seed = 1; seed <= 10; ++seed) {
      ModelPolicy* policy = nullptr;
      SimulatedJob job(with({megabits(1000), megabits(400)}, stripes(factor)), policy, 0.02, seed);
      job.run(8 * kMiB, 400);
      const int moves = job.moves(8 * kMiB);
      job.run(8 * kMiB, 4000);
      EXPECT_LE(job.moves(8 * kMiB) - moves, 4) << factor << " seed " << seed << "\n"
                                                << job.balancer().table().history(23);
      EXPECT_LT(job.excess(8 * kMiB), 0.04);
    }
  }
}

TEST(Stripes, AreNotTriedWhereNeighboursKnowThatSlicesAreBetter) {
  ModelPolicy* policy = nullptr;
  SimulatedJob job(with({megabits(1000), megabits(400)}, stripes(1.5)), policy);
  job.run(2 * kMiB, 60);
  job.run(4 * kMiB, 1);
  EXPECT_LT(job.excess(4 * kMiB), 0.05);
  EXPECT_EQ(job.allocation(4 * kMiB)[2], 0);
}

TEST(Stripes, OfMessagesThatWouldTakeTurnsAreNotProbed) {
  for (const uint64_t bytes : {4 * kKiB, 16 * kKiB}) {
    ModelPolicy* policy = nullptr;
    SimulatedJob job(with({megabits(100), megabits(100)}, stripes(0.5, 10'000)), policy);
    for (int operation = 0; operation < 10'000; ++operation) {
      job.run(bytes, 1);
      const SizeClass size_class = size_class_of(bytes);
      ASSERT_EQ(job.entry(bytes).allocation[2], 0) << job.balancer().table().history(size_class);
    }
  }
}

TEST(Stripes, AreProbedAndProbeSlicesWithinAHundredthOfTheTime) {
  for (const double factor : {0.9, 1.2}) {
    ModelPolicy* policy = nullptr;
    SimulatedJob job(with({megabits(1000), megabits(400)}, stripes(factor)), policy);
    job.run(8 * kMiB, 300);
    const bool are_in_use = factor < 1;
    ASSERT_EQ(job.allocation(8 * kMiB)[2] > 0, are_in_use);
    job.network.lanes[2].slope = are_in_use ? 1.1 : 0.9;
    job.run(8 * kMiB, 20'000);
    EXPECT_EQ(job.allocation(8 * kMiB)[2] > 0, !are_in_use) << job.balancer().table().history(23);
    EXPECT_LE(job.probing(), ProbeBudget::kPart);
  }
}

TEST(Stripes, GoOnWithoutARailAndWithItAgain) {
  int late = 0;
  std::string last;
  for (const double factor : {0.9, 1.2}) {
    for (uint32_t seed = 1; seed <= 10; ++seed) {
      ModelPolicy* policy = nullptr;
      SimulatedJob job(with({megabits(1000), megabits(400), megabits(400)}, stripes(factor)),
                       policy, 0.02, seed);
      job.run(8 * kMiB, 60);
      for (const LaneSet live : {0b1110, 0b1100, 0b1111, 0b0111, 0b1111}) {
        job.set_live(live);
        job.run(8 * kMiB, 30);
        if (job.excess(8 * kMiB) < 0.05) continue;
        ++late;
        last = job.balancer().table().history(23);
      }
    }
  }
  EXPECT_LE(late, 2) << "of 100: outliers may hide what lanes take\n" << last;
}

}  // namespace
}  // namespace nezha
