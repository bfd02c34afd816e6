// SPDX-License-Identifier: Apache-2.0
// Computes what the load balancer's decisions cost in the lane simulator, for bench/balancer
// --score. The same code prints the same table on every machine.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/programs/lane_simulator.h"
#include "collectives/hosts/choice.h"
#include "collectives/hosts/size_regimes.h"
#include "control/model_policy.h"

namespace nezha {
namespace {

constexpr int kRanks = 4;
constexpr uint32_t kSeeds = 20;
constexpr int kPhase = 400;    // operations of a run between two events
constexpr int kCounted = 200;  // the last ones of a phase: the steady state
constexpr double kNoise = 0.02;
constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kMiB = 1 << 20;

struct Network {
  std::string name;
  std::vector<SimulatedLane> rails;
  double striped = 1;  // the factor on stripes' time, as rails hinder each other
};

// Returns a rail of 20 Gbit/s whose ranks have one core for two such rails: together they carry no
// more than one.
SimulatedLane fast() {
  return {.start = 30'000, .slope = 0.4, .start_beside = 10'000, .slope_beside = 1.1};
}

std::vector<Network> networks() {
  return {{"1g", {megabits(1000)}},
          {"1g+1g", {megabits(1000), megabits(1000)}},
          {"1g+400m", {megabits(1000), megabits(400)}},
          {"1g/400m/200m/100m", {megabits(1000), megabits(400), megabits(200), megabits(100)}}};
}
Network fast_rails() { return {"20g+20g, one core", {fast(), fast()}, 2.1}; }

// ---- The balancer, as ControlPlane makes it ----------------------------------------------------

std::optional<Algorithm> other(SizeClass size_class) {
  const Algorithm it = rival(kRanks, typical_bytes(size_class));
  return it == Algorithm::kAuto ? std::nullopt : std::optional(it);
}

LoadBalancer balancer(std::vector<std::string> names, LaneSet alone, LaneRates rates) {
  const auto lanes = static_cast<int>(names.size());
  return {std::move(names), std::make_unique<ModelPolicy>(lanes, alone, std::move(rates), other,
                                                          size_class_of(SizeRegimes::kWhole))};
}

// ---- Runs --------------------------------------------------------------------------------------

// Returns the lanes of a network. The seed determines how long stripes take.
std::vector<SimulatedLane> lanes_for(const Network& network, double bucket, uint32_t seed) {
  static constexpr std::array kFactors = {1.0, 1.07, 1.15};
  static constexpr std::array kTurns = {0.7, 0.85, 1.0};
  std::vector<SimulatedLane> lanes = network.rails;
  for (SimulatedLane& lane : lanes) {
    lane.bucket = bucket;
    lane.least_paid = 0.05;  // a bucket is emptied at some twenty times the rate
  }
  if (lanes.size() == 1) return lanes;
  lanes.push_back(stripes(network.striped * kFactors[seed % 3], 90'000));
  lanes.back().turns = kTurns[seed / 3 % 3];
  return lanes;
}

// Returns the factors by which start-up and bytes take longer with the other algorithm: short
// messages take more rounds of fewer bytes, longer ones fewer rounds of more bytes.
std::pair<double, double> other_algorithm(uint64_t bytes) {
  return bytes < 32 * kKiB ? std::pair(1.6, 0.75) : std::pair(0.625, 4. / 3);
}

// Returns the mean time of operations with a fixed division in the long run, without noise.
double steady_time(LaneSimulator network, const Allocation& by, double bytes, bool is_other) {
  constexpr int kWarmUp = 40;
  constexpr int kMeasured = 40;
  double sum = 0;
  network.empty_buckets();
  for (int i = 0; i < kWarmUp + kMeasured; ++i) {
    const std::vector<double> times = network.times(by, bytes, is_other);
    const double took = *std::max_element(times.begin(), times.end());
    network.save_up(by, bytes, took);
    if (i >= kWarmUp) sum += took;
  }
  return sum / kMeasured;
}

// Returns the time of the best division among the lanes of a set. The search starts at parts in
// proportion to rates and takes smaller and smaller steps.
double best_of(const LaneSimulator& network, LaneSet set, double bytes, bool is_other) {
  std::vector<double> parts;
  for (size_t lane = 0; lane < network.lanes.size(); ++lane) {
    const bool is_in = contains(set, static_cast<int>(lane));
    parts.push_back(is_in ? 1 / network.lanes[lane].slope : 0);
  }
  double best = steady_time(network, in_proportion(parts), bytes, is_other);
  if (std::has_single_bit(set)) return best;
  for (double step = 0.3; step > 0.005;) {
    const double before = best;
    for (double& part : parts) {
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        const double was = part;
        part *= factor;
        const double time = steady_time(network, in_proportion(parts), bytes, is_other);
        if (time >= best) part = was;
        best = std::min(best, time);
      }
    }
    if (best == before) step /= 2;
  }
  return best;
}

struct Best {
  double any = 1e300;   // the best fixed split
  double rail = 1e300;  // the best rail alone
};

// Returns the best times over all sets of lanes in `among`.
Best best_among(const LaneSimulator& network, LaneSet among, uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  const bool has_other = other(size_class_of(bytes)).has_value();
  Best best;
  for (LaneSet set = 1; set <= among; ++set) {
    const bool is_one = std::has_single_bit(set);
    const bool is_possible = (set & network.alone()) == 0 || is_one;
    if ((set & ~(among & network.live)) != 0 || !is_possible) continue;
    double time = best_of(network, set, size, false);
    if (has_other) time = std::min(time, best_of(network, set, size, true));
    best.any = std::min(best.any, time);
    if (is_one && (set & network.alone()) == 0) best.rail = std::min(best.rail, time);
  }
  return best;
}

// Seeds differ in stripes only, so the best times of the other lanes are computed once.
Best best_times(const LaneSimulator& network, uint64_t bytes) {
  static std::map<std::vector<double>, Best> known;
  const LaneSet all = all_lanes(static_cast<int>(network.lanes.size()));
  std::vector<double> key{static_cast<double>(bytes), static_cast<double>(network.live & all)};
  for (const SimulatedLane& it : network.lanes) {
    if (!it.is_stripes) key.insert(key.end(), {it.start, it.slope, it.slope_beside, it.bucket});
  }
  const auto [found, is_new] = known.try_emplace(key);
  if (is_new) found->second = best_among(network, all & ~network.alone(), bytes);
  Best best = found->second;
  if (network.alone() == 0) return best;
  best.any = std::min(best.any, best_among(network, network.alone(), bytes).any);
  return best;
}

// A phase of a run: the time of its operations compared to the best fixed split.
struct Phase {
  double lost = 0;    // milliseconds
  double steady = 0;  // ratio
  double rail = 0;    // ratio to the best rail alone
};

class Run {
 public:
  Run(const Network& network, double bucket, uint64_t bytes, uint32_t seed)
      : bytes_(bytes), job_(lanes_for(network, bucket, seed), balancer, kNoise, seed) {
    std::tie(job_.network.other_start, job_.network.other_bytes) = other_algorithm(bytes);
  }

  SimulatedJob& job() { return job_; }
  Phase phase() {
    const Best best = best_times(job_.network, bytes_);
    Phase phase;
    for (int i = 0; i < kPhase; ++i) {
      job_.run(bytes_, 1);
      const double took = job_.took();
      phase.lost += (took - best.any) / 1e6;
      if (i < kPhase - kCounted) continue;
      phase.steady += took / best.any / kCounted;
      phase.rail += took / best.rail / kCounted;
    }
    return phase;
  }

 private:
  uint64_t bytes_;
  SimulatedJob job_;
};

enum Event : size_t { kStart, kSlower, kBack, kLost, kEvents };
constexpr std::array<const char*, kEvents> kEventNames = {"start", "slower", "back", "lost"};
using Phases = std::array<Phase, kEvents>;

// Runs a job in which the first rail slows down to three tenths of its rate, returns to its rate,
// and is lost.
Phases run_of(const Network& network, double bucket, uint64_t bytes, uint32_t seed) {
  Run run(network, bucket, bytes, seed);
  Phases phases;
  phases[kStart] = run.phase();
  if (network.rails.size() == 1) return phases;
  SimulatedLane& first = run.job().network.lanes.front();
  const double slope = first.slope;
  first.slope = slope / 0.3;
  phases[kSlower] = run.phase();
  first.slope = slope;
  phases[kBack] = run.phase();
  run.job().set_live(all_lanes(static_cast<int>(network.rails.size()) + 1) & ~LaneSet{1});
  phases[kLost] = run.phase();
  return phases;
}

Phases mean_of(const Network& network, double bucket, uint64_t bytes) {
  Phases mean;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    const Phases phases = run_of(network, bucket, bytes, seed);
    for (size_t event = 0; event < kEvents; ++event) {
      mean[event].lost += phases[event].lost / kSeeds;
      mean[event].steady += phases[event].steady / kSeeds;
      mean[event].rail += phases[event].rail / kSeeds;
    }
  }
  return mean;
}

// ---- The table ---------------------------------------------------------------------------------

struct Bucket {
  const char* name;
  double bytes;
};
constexpr std::array kBuckets = {Bucket{"none", 0}, Bucket{"32K", 32 << 10}, Bucket{"1M", 1 << 20}};
constexpr std::array kSizes = {4 * kKiB,   16 * kKiB, 64 * kKiB, 128 * kKiB,
                               512 * kKiB, kMiB,      4 * kMiB};
constexpr std::array kAllSizes = {4 * kKiB, 16 * kKiB, 64 * kKiB, 128 * kKiB, 512 * kKiB,
                                  kMiB,     4 * kMiB,  16 * kMiB, 64 * kMiB};

template <typename Sizes>
void print_head(const char* what, const Sizes& sizes) {
  std::printf("\n%s\n%-26s%-7s%-8s", what, "network", "bucket", "");
  for (const uint64_t size : sizes) {
    const std::string name =
        size < kMiB ? std::to_string(size / kKiB) + "K" : std::to_string(size / kMiB) + "M";
    std::printf("%9s", name.c_str());
  }
  std::printf("\n");
}

void print_row(const std::string& network, const char* bucket, const char* event,
               const std::vector<double>& cells, int digits) {
  std::printf("%-26s%-7s%-8s", network.c_str(), bucket, event);
  for (const double cell : cells) std::printf("%9.*f", digits, cell);
  std::printf("\n");
}

using Results = std::vector<Phases>;  // indexed by size

void print_steady(const std::map<std::pair<size_t, size_t>, Results>& results) {
  print_head("steady state: times the best fixed split", kSizes);
  const std::vector<Network> all = networks();
  for (const auto& [where, phases] : results) {
    for (const Event event : {kStart, kSlower, kLost}) {
      if (all[where.first].rails.size() == 1 && event != kStart) continue;
      std::vector<double> cells;
      for (const Phases& it : phases) cells.push_back(it[event].steady);
      print_row(all[where.first].name, kBuckets[where.second].name, kEventNames[event], cells, 3);
    }
  }
}

void print_events(const std::map<std::pair<size_t, size_t>, Results>& results) {
  print_head("events: ms lost in 400 operations beside the best fixed split", kSizes);
  const std::vector<Network> all = networks();
  for (const auto& [where, phases] : results) {
    if (all[where.first].rails.size() == 1) continue;
    for (size_t event = 0; event < kEvents; ++event) {
      std::vector<double> cells;
      for (const Phases& it : phases) cells.push_back(it[event].lost);
      print_row(all[where.first].name, kBuckets[where.second].name, kEventNames[event], cells, 1);
    }
  }
}

void print_alone() {
  print_head("steady state: times the best rail alone, without buckets", kAllSizes);
  std::vector<Network> all = networks();
  all.erase(all.begin());
  all.push_back(fast_rails());
  for (const Network& network : all) {
    std::vector<double> cells;
    cells.reserve(kAllSizes.size());
    for (const uint64_t size : kAllSizes) {
      cells.push_back(mean_of(network, 0, size)[kStart].rail);
    }
    print_row(network.name, "none", "", cells, 3);
  }
}

void print_all() {
  std::map<std::pair<size_t, size_t>, Results> results;
  const std::vector<Network> all = networks();
  for (size_t network = 0; network < all.size(); ++network) {
    for (size_t bucket = 0; bucket < kBuckets.size(); ++bucket) {
      for (const uint64_t size : kSizes) {
        results[{network, bucket}].push_back(mean_of(all[network], kBuckets[bucket].bytes, size));
      }
    }
  }
  print_steady(results);
  print_events(results);
  print_alone();
}

}  // namespace
}  // namespace nezha

int main() {
  nezha::print_all();
  return 0;
}
