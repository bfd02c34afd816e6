// SPDX-License-Identifier: Apache-2.0
#include "control/paper_policy.h"

#include <cstdint>
#include <vector>

#include "bench/programs/lane_simulator.h"
#include "gtest/gtest.h"
#include "tests/unit/control/simulated_networks.h"

namespace nezha {
namespace {

TEST(PaperPolicy, SearchesEqualPartsThenBalancesByLatencyThenByPercents) {
  PaperPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(400)}, policy, 0);
  job.run(8 * kMiB, 200);
  EXPECT_EQ(job.entry(8 * kMiB).state, ClassState::kConverged);
  EXPECT_LT(job.excess(8 * kMiB), 0.02);
  const auto& history = job.entry(8 * kMiB).history;
  ASSERT_GE(history.size(), 8);
  EXPECT_EQ(history[0].allocation, equal_parts(3, 2));
  for (size_t i = 1; i <= 4; ++i) EXPECT_EQ(history[i].cause, Cause::kSearch);
  EXPECT_EQ(history[5].allocation, equal_parts(3, 2)) << "the hot start";
  EXPECT_NEAR(history[6].allocation[0], SliceBounds::kWhole * 10.0 / 14, 5'000) << "by latency";
  EXPECT_EQ(history[7].cause, Cause::kRebalance);
}

TEST(PaperPolicy, ASearchThatIsResumedTriesEqualPartsToo) {
  PaperPolicy policy(2);
  const Window last{23, 8 << 20, 1, {{90'000'000, 0}, {0, 0}}, 10};
  policy.resume(last, {Algorithm::kAuto, all_on(0, 2)}, ClassState::kSearching);
  const auto next = policy.on_window(last, all_on(0, 2));
  ASSERT_TRUE(next);
  EXPECT_EQ(next->allocation, equal_parts(0b11, 2));
}

TEST(PaperPolicy, ConvergesOnTwoToFourLanes) {
  for (const size_t lanes : {2, 3, 4}) {
    PaperPolicy* policy = nullptr;
    SimulatedJob job(std::vector<SimulatedLane>(lanes, megabits(1000)), policy);
    const int operations = job.operations_until(8 * kMiB, 1000, [&] {
      return job.balancer().table().entries.contains(23) &&
             job.entry(8 * kMiB).state == ClassState::kConverged;
    });
    RecordProperty("operations_" + std::to_string(lanes), operations);
    EXPECT_LT(operations, 300) << lanes;
    EXPECT_LT(job.excess(8 * kMiB), 0.03) << lanes;
  }
}

TEST(PaperPolicy, IsColdBelowTheCrossover) {
  const SimulatedLane glex{
      .start = 80'000, .slope = 2.0, .start_beside = 50'000, .slope_beside = 0.2};
  const SimulatedLane sharp{
      .start = 6'300, .slope = 2.68, .start_beside = 90'000, .slope_beside = 0.06};
  PaperPolicy* policy = nullptr;
  SimulatedJob job({glex, sharp}, policy);
  job.run(4 * kKiB, 200);
  EXPECT_EQ(job.entry(4 * kKiB).state, ClassState::kCold);
  EXPECT_EQ(job.allocation(4 * kKiB), all_on(1, 2));
  job.run(8 * kMiB, 200);
  EXPECT_EQ(job.entry(8 * kMiB).state, ClassState::kConverged);

  job.run(kKiB, 30);
  EXPECT_EQ(job.entry(kKiB).windows, 2) << "below the threshold, only each lane alone is tried";
  EXPECT_EQ(job.entry(kKiB).state, ClassState::kCold);
  job.run(16 * kMiB, 10);
  EXPECT_EQ(job.entry(16 * kMiB).state, ClassState::kHot) << "above it, none is";
}

TEST(PaperPolicy, ADriftReopensTheSearch) {
  PaperPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(1000)}, policy);
  job.run(8 * kMiB, 200);
  ASSERT_EQ(job.entry(8 * kMiB).state, ClassState::kConverged);
  for (const double rate : {300.0, 1000.0}) {
    job.network.lanes[0].slope = 8000 / rate;
    job.run(8 * kMiB, 150);
    EXPECT_EQ(job.entry(8 * kMiB).state, ClassState::kConverged) << rate;
    EXPECT_LT(job.excess(8 * kMiB), 0.05) << rate;
  }
}

TEST(PaperPolicy, NoiseMovesNothingThatHasConverged) {
  PaperPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(400), megabits(200)}, policy, 0.02);
  job.run(8 * kMiB, 400);
  const int moves = job.moves(8 * kMiB);
  job.run(8 * kMiB, 4000);
  EXPECT_EQ(job.moves(8 * kMiB), moves);
}

TEST(PaperPolicy, ADeadLaneCarriesNothing) {
  PaperPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(1000), megabits(1000)}, policy);
  job.run(8 * kMiB, 200);
  job.set_live(0b110);
  EXPECT_EQ(job.allocation(8 * kMiB)[0], 0);
  EXPECT_EQ(job.entry(8 * kMiB).state, ClassState::kHot);
  job.run(8 * kMiB, 100);
  EXPECT_LT(job.excess(8 * kMiB), 0.03);
  job.set_live(0b100);
  EXPECT_EQ(job.allocation(8 * kMiB), all_on(2, 3));
  job.set_live(0b111);
  job.run(8 * kMiB, 200);
  EXPECT_LT(job.excess(8 * kMiB), 0.03);
}

}  // namespace
}  // namespace nezha
