// The model's policy when the network changes: one rail to 300 Mbit/s and back.
#include <cstdint>
#include <string>
#include <vector>

#include "control/model_policy.h"
#include "gtest/gtest.h"
#include "tests/unit/control/lane_simulator.h"
#include "tests/unit/control/simulated_networks.h"

namespace nezha {
namespace {

constexpr uint32_t kChangeSeeds = 20;
// Of those, the runs that may still be at it: outliers hide a change, or look like one.
constexpr int kLate = 2;

struct Case {
  std::string name;
  std::vector<SimulatedLane> lanes;
  uint64_t bytes = 0;
};

std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const uint64_t bytes : {128 * kKiB, kMiB, 8 * kMiB}) {
    for (const size_t rails : {2, 3, 4}) {
      const std::vector<SimulatedLane> lanes(rails, megabits(1000));
      cases.push_back({std::to_string(rails) + " rails", lanes, bytes});
      for (const double factor : {0.9, 1.0, 1.3}) {
        cases.push_back({cases.back().name + " and stripes", lanes, bytes});
        cases.back().lanes.push_back(stripes(factor));
      }
    }
  }
  return cases;
}

TEST(Adaptation, TakesThreeWindowsOfTen) {
  for (const Case& it : cases()) {
    int late[] = {0, 0};
    std::string last;
    for (uint32_t seed = 1; seed <= kChangeSeeds; ++seed) {
      ModelPolicy* policy = nullptr;
      SimulatedJob job(it.lanes, policy, 0.02, seed);
      job.run(it.bytes, 60 + static_cast<int>(seed));
      for (const double rate : {300.0, 1000.0}) {
        job.network.lanes[0].slope = 8000 / rate;
        // A rail that has been left is seen by probes only.
        const bool is_seen = job.allocation(it.bytes)[0] > 0 || job.allocation(it.bytes).back() > 0;
        job.run(it.bytes, 30);
        if (job.excess(it.bytes) > 0.05 && is_seen) {
          ++late[rate > 300];
          last = job.balancer().table().history(size_class_of(it.bytes));
        }
        job.run(it.bytes, 90);
      }
    }
    EXPECT_LE(late[0], kLate) << it.name << ", " << it.bytes << " bytes, slower\n" << last;
    EXPECT_LE(late[1], kLate) << it.name << ", " << it.bytes << " bytes, faster\n" << last;
  }
}

// What is not in use is seen by probes, one of which costs about six operations' time: a hundredth
// of the time allows for one in over six hundred operations, twice as many since it may take longer
// than was thought. More lanes take turns.
TEST(Adaptation, OfALaneThatWasLeftTakesAProbe) {
  for (const int lane : {0, 1}) {
    for (uint32_t seed = 1; seed <= kChangeSeeds; ++seed) {
      ModelPolicy* policy = nullptr;
      SimulatedJob job({kGlex, kSharp}, policy, 0.02, seed);
      job.run(128 * kKiB, 100);
      SimulatedLane& changed = job.network.lanes[static_cast<size_t>(lane)];
      const double before = changed.slope;
      changed.slope *= 3;
      job.run(128 * kKiB, 150);
      ASSERT_EQ(job.allocation(128 * kKiB)[static_cast<size_t>(lane)], 0);
      changed.slope = before;
      job.run(128 * kKiB, 3000);
      EXPECT_LT(job.excess(128 * kKiB), 0.05) << lane << " seed " << seed << "\n"
                                              << job.balancer().table().history(17);
    }
  }
}

}  // namespace
}  // namespace nezha
