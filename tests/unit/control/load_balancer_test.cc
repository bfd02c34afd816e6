// SPDX-License-Identifier: Apache-2.0
#include "control/load_balancer.h"

#include <memory>
#include <string>
#include <vector>

#include "bench/programs/lane_simulator.h"
#include "control/model_policy.h"
#include "control/paper_policy.h"
#include "control/table_file.h"
#include "gtest/gtest.h"
#include "tests/unit/control/simulated_networks.h"

namespace nezha {
namespace {

TEST(Allocation, PartsAddUpWhateverTheWeights) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    std::vector<double> weights(1 + random() % kMaxLanes);
    for (double& weight : weights) weight = std::exp(static_cast<double>(random() % 60));
    uint64_t sum = 0;
    for (const uint32_t part : in_proportion(weights)) sum += part;
    EXPECT_EQ(sum, SliceBounds::kWhole);
  }
  EXPECT_EQ(equal_parts(0b101, 3), (Allocation{1 << 19, 0, 1 << 19}));
  EXPECT_EQ(all_on(1, 2), (Allocation{0, 1 << 20}));
  EXPECT_EQ(lanes_of({5, 0, 7}), 0b101);
  EXPECT_EQ(restricted_to(0b01, {1 << 19, 1 << 19}), all_on(0, 2));
  EXPECT_EQ(to_string(Allocation{1 << 18, 3 << 18}), "25.0 75.0");
}

std::unique_ptr<LoadBalancer> balancer() {
  return std::make_unique<LoadBalancer>(std::vector<std::string>{"eth0", "eth1"},
                                        std::make_unique<ModelPolicy>(2));
}
Window window(SizeClass size_class, uint32_t number, std::vector<LaneTime> lanes) {
  return {size_class, typical_bytes(size_class), number, std::move(lanes), 3};
}

// A run that resumes from a table that was saved during a probe continues where the class was
// before the probe.
TEST(TableEntry, TimesOfAProbeAreNotThoseOfTheClass) {
  TableEntry entry;
  entry.change(all_on(0, 2), Cause::kStart);
  entry.saw(window(20, 1, {{100, 0}, {0, 0}}));
  entry.change(all_on(1, 2), Cause::kProbe);
  EXPECT_TRUE(entry.is_probed());
  entry.saw(window(20, 2, {{0, 0}, {90, 0}}));
  EXPECT_EQ(entry.windows, 2);
  EXPECT_EQ(entry.ran_by, all_on(0, 2));
  EXPECT_EQ(entry.times, (std::vector<Nanos>{100, 0}));
  entry.record(Cause::kSearch);
  EXPECT_FALSE(entry.is_probed());
  entry.saw(window(20, 2, {{0, 0}, {80, 0}}));
  EXPECT_EQ(entry.ran_by, all_on(1, 2));
}

TEST(LoadBalancer, ClassesWithoutAnAllocationRunByTheNearest) {
  const auto it = balancer();
  EXPECT_EQ(it->allocation(kMiB), equal_parts(3, 2)) << "nothing is known yet";
  const auto opened = it->open(kMiB);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->size_class, 20);
  EXPECT_EQ(opened->number, 1);
  EXPECT_FALSE(it->open(kMiB + 1)) << "it has one";
  const auto next = it->on_window(window(20, 1, {{1000, 0}, {90'000, 0}}));
  ASSERT_TRUE(next);
  EXPECT_EQ(next->number, 2);
  EXPECT_EQ(it->allocation(kMiB), next->allocation);
  EXPECT_EQ(it->allocation(5), next->allocation);
}

TEST(LoadBalancer, PassesOverWindowsByOtherAllocations) {
  const auto it = balancer();
  EXPECT_FALSE(it->on_window(window(20, 1, {{1000, 0}, {90'000, 0}}))) << "the class is not open";
  it->open(kMiB);
  EXPECT_FALSE(it->on_window(window(20, 2, {{1000, 0}, {90'000, 0}})));
  EXPECT_FALSE(it->on_window(window(20, 1, {{0, 0}, {0, 0}}))) << "no lane took part";
  EXPECT_EQ(it->table().entries.at(20).windows, 0);
  EXPECT_TRUE(it->on_window(window(20, 1, {{1000, 0}, {90'000, 0}})));
  EXPECT_FALSE(it->on_window(window(20, 1, {{1000, 0}, {90'000, 0}})));
}

// Slices are cut at cache lines, so one lane gets all of a message of four bytes.
TEST(LoadBalancer, MessagesTooShortToBeCutAreComparedOnEachLaneAlone) {
  const auto it = balancer();
  auto change = it->open(4);
  uint32_t number = change->number;
  Allocation by = change->allocation;
  for (int i = 0; i < 30; ++i) {
    const bool on_first = by == all_on(0, 2);
    change = it->on_window(window(2, number, {{on_first ? 30 : 0, 0}, {on_first ? 0 : 50, 0}}));
    if (!change) continue;
    number = change->number;
    by = change->allocation;
  }
  EXPECT_EQ(by, all_on(0, 2));
  EXPECT_EQ(it->table().entries.at(2).state, ClassState::kCold);
  EXPECT_LE(it->table().entries.at(2).changes, 12);
}

TEST(LoadBalancer, TheTableIsForPeople) {
  ModelPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(400)}, policy, 0);
  job.run(8 * kMiB, 60);
  job.run(64, 60);
  const std::string table = job.balancer().table().to_string();
  EXPECT_NE(table.find("     size  state      windows  changes  eth0              eth1"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("    8 MiB  converged"), std::string::npos) << table;
  EXPECT_NE(table.find("71.4% 4"), std::string::npos) << table;
  EXPECT_NE(table.find("     64 B  cold"), std::string::npos) << table;
  EXPECT_NE(
      job.balancer().table().history(23).find("after 0 windows: eth0 67.6%, eth1 32.4%: start"),
      std::string::npos)
      << job.balancer().table().history(23);
}

TEST(LoadBalancer, ClassesWhoseAllocationStaysGoOnAsThePolicySays) {
  ModelPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(5)}, policy);
  job.run(8 * kMiB, 60);
  ASSERT_EQ(job.entry(8 * kMiB).state, ClassState::kCold);
  ASSERT_EQ(job.entry(8 * kMiB).allocation, all_on(0, 2));
  const uint32_t number = job.entry(8 * kMiB).number;
  job.set_live(0b01);
  const TableEntry& entry = job.entry(8 * kMiB);
  EXPECT_EQ(entry.number, number);
  EXPECT_EQ(entry.state, ClassState::kSearching);
  EXPECT_EQ(entry.state, policy->state(23));
  EXPECT_EQ(entry.history.back().cause, Cause::kLanes);
  EXPECT_LT(job.balancer().window_operations(23), Timer::kOperations);
}

// Returns how often a rank is told, in 800 windows of a class that is faster on the first lane,
// that the class is back where it had settled.
int returns(SizeClass size_class) {
  const auto it = balancer();
  auto change = it->open(typical_bytes(size_class));
  EXPECT_TRUE(change && !change->is_return);
  Allocation settled;
  int returns = 0;
  for (int i = 0; i < 800; ++i) {
    const TableEntry& entry = it->table().entries.at(size_class);
    if (is_settled(entry.state) && !entry.is_probed()) settled = entry.allocation;
    const bool is_first = entry.allocation[0] > 0;
    const bool is_second = entry.allocation[1] > 0;
    change = it->on_window(window(size_class, entry.number,
                                  {{is_first ? 50'000 : 0, 500}, {is_second ? 90'000 : 0, 500}}));
    if (!change || !change->is_return) continue;
    EXPECT_EQ(change->allocation, settled) << i;
    EXPECT_EQ(entry.history.back().cause, Cause::kReturn);
    ++returns;
  }
  return returns;
}

// The times of that allocation are known, so that a sample of short messages is enough.
TEST(LoadBalancer, RanksAreToldThatMessagesAreBackFromAProbe) { EXPECT_GE(returns(12), 1); }

template <typename SomePolicy>
class Overlapping : public testing::Test {};
using LearningPolicies = testing::Types<ModelPolicy, PaperPolicy>;
TYPED_TEST_SUITE(Overlapping, LearningPolicies);

// A class ends any trial when operations begin to overlap, because they then give no times.
TYPED_TEST(Overlapping, NothingIsTriedForEver) {
  int left = 0;
  for (const uint64_t bytes : {4 * kKiB, 8 * kMiB}) {
    for (int before = 1; before < 150; ++before) {
      TypeParam* policy = nullptr;
      SimulatedJob job({megabits(1000), megabits(400), megabits(20)}, policy);
      job.rates = {0, 0, 0};
      job.run(bytes, before);
      const Allocation tried = job.entry(bytes).allocation;
      const bool is_trial = job.entry(bytes).history.back().cause == Cause::kProbe;
      job.overlap = true;
      job.run(bytes, Timer::kSilent + 2 * SimulatedJob::kLag);
      const TableEntry& entry = job.entry(bytes);
      EXPECT_NE(entry.history.back().cause, Cause::kProbe) << before;
      const auto time = [&](const Allocation& by) {
        return job.network.time(by, static_cast<double>(bytes));
      };
      const double usual = std::max(time(tried), time(policy->unlearned()));
      EXPECT_LE(time(entry.allocation), usual) << entry.history.size() << " at " << before;
      left += is_trial || time(entry.allocation) < 0.5 * time(tried) ? 1 : 0;
      const uint32_t number = entry.number;
      job.run(bytes, 10 * Timer::kSilent);
      EXPECT_EQ(job.entry(bytes).number, number) << "it stays";
      job.overlap = false;
      job.run(bytes, 400);
      EXPECT_TRUE(is_settled(job.entry(bytes).state)) << before;
      EXPECT_LE(time(job.allocation(bytes)), usual) << before;
    }
  }
  EXPECT_GT(left, 3) << "it was never in the middle of a trial";
}

template <typename SomePolicy>
class Resumed : public testing::Test {};
using Policies = testing::Types<ModelPolicy, PaperPolicy>;
TYPED_TEST_SUITE(Resumed, Policies);

TYPED_TEST(Resumed, GoesOnWhereItStopped) {
  TypeParam* policy = nullptr;
  SimulatedJob first({megabits(1000), megabits(400)}, policy);
  first.run(8 * kMiB, 200);
  SimulatedJob second({megabits(1000), megabits(400)}, policy);
  const auto saved = parse_table(format_table(first.balancer().table()), "t");
  ASSERT_TRUE(saved.ok()) << saved.status();
  const auto changes = second.resume(*saved);
  ASSERT_EQ(changes.size(), 1);
  EXPECT_EQ(changes[0].allocation, first.allocation(8 * kMiB));
  EXPECT_EQ(changes[0].number, 1);
  second.run(8 * kMiB, 100);
  EXPECT_EQ(second.entry(8 * kMiB).state, ClassState::kConverged);
  EXPECT_EQ(second.moves(8 * kMiB), 0) << second.balancer().table().history(23);
  EXPECT_LT(second.excess(8 * kMiB), 0.03);
  second.network.lanes[0].slope = 20;
  second.run(8 * kMiB, 150);
  EXPECT_LT(second.excess(8 * kMiB), 0.05) << "it goes on learning";
}

DataLengthTable table_of(Allocation allocation, std::vector<Nanos> times) {
  TableEntry entry;
  entry.change(std::move(allocation), Cause::kStart);
  entry.state = ClassState::kConverged;
  entry.ran_by = entry.allocation;
  entry.windows = 1;
  entry.bytes = 8 * kMiB;
  entry.times = std::move(times);
  return {{"eth0", "eth1"}, {{size_class_of(entry.bytes), entry}}};
}

TYPED_TEST(Resumed, ALaneThatIsDeadBeforeCarriesNothing) {
  TypeParam* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(400)}, policy);
  job.set_live(0b10);
  const auto changes = job.resume(table_of({1 << 19, 1 << 19}, {33'000'000, 80'000'000}));
  ASSERT_EQ(changes.size(), 1);
  EXPECT_EQ(changes[0].allocation, all_on(1, 2));
  EXPECT_EQ(changes[0].number, job.entry(8 * kMiB).number);
  EXPECT_EQ(job.entry(8 * kMiB).state, policy->state(23));
  job.run(8 * kMiB, 30);
  EXPECT_EQ(job.allocation(8 * kMiB), all_on(1, 2));
  EXPECT_GT(job.entry(8 * kMiB).windows, 1) << "the allocation in use is measured";
}

TEST(LoadBalancer, RefusesATableThatHasALaneThatStandsAloneBesideOthers) {
  LoadBalancer it({"eth0", "eth1"}, std::make_unique<ModelPolicy>(2, 0b10));
  const auto resumed = it.resume(table_of({1 << 19, 1 << 19}, {33'000'000, 80'000'000}));
  ASSERT_FALSE(resumed.ok());
  EXPECT_NE(resumed.status().message().find("50.0 50.0"), std::string::npos) << resumed.status();
  EXPECT_TRUE(it.table().entries.empty());
}

TYPED_TEST(Resumed, RefusesATableOfOtherLanes) {
  LoadBalancer it({"eth0", "eth1"}, std::make_unique<TypeParam>(2));
  for (const std::vector<std::string>& lanes :
       {std::vector<std::string>{"eth0", "eth2"}, {"eth1", "eth0"}, {"eth0"}}) {
    const auto resumed = it.resume({lanes, {}});
    ASSERT_FALSE(resumed.ok());
    EXPECT_NE(resumed.status().message().find("than this context's (eth0, eth1)"),
              std::string::npos)
        << resumed.status();
  }
}

}  // namespace
}  // namespace nezha
