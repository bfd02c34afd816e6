// SPDX-License-Identifier: Apache-2.0
// The model with a lane of stripes beside lanes of slices, over the same rails.
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
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

TEST(Stripes, LongMessagesStartWithStripes) {
  EXPECT_EQ(unlearned(0b111, 0b100, 3), all_on(2, 3));
  EXPECT_EQ(unlearned(0b011, 0b100, 3), equal_parts(0b011, 3)) << "stripes are dead";
  EXPECT_EQ(unlearned(0b111, 0, 3), equal_parts(0b111, 3));
  ModelPolicy policy(3, 0b100);
  EXPECT_EQ(policy.open(23), all_on(2, 3));
}

TEST(Stripes, StripesOrSlicesAreNearTheBestAfterAHundredOperations) {
  for (const Network& network : networks()) {
    for (const uint64_t bytes : {kKiB, 16 * kKiB, 128 * kKiB, kMiB, 8 * kMiB, 64 * kMiB}) {
      int late = 0;
      std::string last;
      for (const double factor : {0.9, 1.0, 1.2}) {
        for (uint32_t seed = 1; seed <= 8; ++seed) {
          ModelPolicy* policy = nullptr;
          SimulatedJob job(with(network.lanes, stripes(factor)), policy, 0.01, seed);
          job.run(bytes, 100);
          if (job.excess(bytes) < (bytes <= 16 * kKiB ? 0.06 : 0.03)) continue;
          ++late;
          last = job.balancer().table().history(size_class_of(bytes));
        }
      }
      EXPECT_LE(late, 6) << "of 24 runs, since outliers hide what lanes take: " << network.name
                         << ", " << bytes << " bytes\n"
                         << last;
    }
  }
}

// The policy does not consider all sets of eight rails.
TEST(Stripes, StripesOrSlicesOfEightRailsAreNearTheBest) {
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

// Stripes adapt while an operation runs.
TEST(Stripes, LargeMessagesUseStripesOrOneRail) {
  for (const double factor : {0.9, 1.2, 2.2}) {
    SimulatedJob job(
        with({megabits(1000), megabits(1000)}, stripes(factor)),
        [](std::vector<std::string> names, LaneSet alone, LaneRates rates) {
          return LoadBalancer(std::move(names), std::make_unique<ModelPolicy>(
                                                    3, alone, std::move(rates), nullptr, 23));
        },
        0.02, 1);
    job.run(64 * kMiB, 1'000);
    const LaneSet set = lanes_of(job.allocation(64 * kMiB));
    EXPECT_TRUE(std::has_single_bit(set)) << factor;
    EXPECT_EQ(set == 0b100, factor < 2) << "it is no faster than one rail at " << factor;
    job.run(kMiB, 200);
    EXPECT_EQ(lanes_of(job.allocation(kMiB)) == 0b11, factor > 1) << "shorter ones may be cut";
  }
}

TEST(Stripes, DoNotAlternateWithSlicesBecauseOfNoise) {
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

// If the ranks' cores are the limit and not the wires, a second rail may gain nothing.
TEST(Stripes, StripesAndSlicesAreNeverSlowerThanTheBestRailAlone) {
  SimulatedLane fast = megabits(20'000);
  fast.slope_beside = 1.1;
  for (const uint64_t bytes :
       {4 * kKiB, 16 * kKiB, 64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB}) {
    for (uint32_t seed = 1; seed <= 10; ++seed) {
      SimulatedJob job(
          with({fast, fast}, stripes(2.2)),
          [](std::vector<std::string> names, LaneSet alone, LaneRates rates) {
            return LoadBalancer(std::move(names), std::make_unique<ModelPolicy>(
                                                      3, alone, std::move(rates), nullptr, 23));
          },
          0.02, seed);
      job.run(bytes, 300);
      const auto size = static_cast<double>(bytes);
      const double alone = job.network.time(all_on(0, 3), size);
      EXPECT_LT(job.network.time(job.allocation(bytes), size), 1.02 * alone)
          << job.balancer().table().history(size_class_of(bytes));
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
    EXPECT_LE(job.probing(), Budget::kPart);
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
  EXPECT_LE(late, 2) << "of 100 runs, since outliers may hide what lanes take\n" << last;
}

}  // namespace
}  // namespace nezha
