// SPDX-License-Identifier: Apache-2.0
// Lanes as policies see them, and a job that runs allreduces over them, balanced by a policy: for
// bench/balancer --score and for the unit tests.
//
// A lane takes a start-up and a time for each byte; stripes take a start-up and the time in which
// all other lanes together get through the bytes. A lane with a bucket saves up tokens while it is
// done and others are not. In a job with noise, one duration in twenty is three times as long. A
// job on a busy machine behaves as four hosts did that had rails of 1 Gbit/s in namespaces of one
// machine: stalls make every lane late, and one often follows another.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "control/load_balancer.h"
#include "control/timer.h"

namespace nezha {

// Ends the program if the simulated job does what no job may.
inline void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "simulated job: %s\n", what.c_str());
  std::abort();
}

struct SimulatedLane {
  double start = 50'000;    // nanoseconds
  double slope = 8;         // nanoseconds a byte: 1 Gbit/s
  double start_beside = 0;  // added by each other lane
  double slope_beside = 0;  // fraction of itself, added by each other lane
  double burst = 0;         // bytes that a bucket of tokens lets through
  double burst_slope = 0;   // nanoseconds a byte of a burst
  double bucket = 0;        // bytes that a lane saves up while it has nothing to do
  double least_paid = 0.5;  // the least part of its bytes that it pays for
  bool is_stripes = false;  // stands alone; slope is a factor
  // The time of stripes where messages take turns on the rails, relative to a message on the
  // fastest rail alone, if another rail is about as fast. 0: messages never take turns.
  double turns = 0;
};

inline SimulatedLane megabits(double rate) {
  return {.start = 50'000, .slope = 8000 / rate, .start_beside = 10'000};
}

inline SimulatedLane stripes(double factor = 1, double start = 150'000) {
  return {.start = start, .slope = factor, .is_stripes = true};
}

class LaneSimulator {
 public:
  explicit LaneSimulator(std::vector<SimulatedLane> those = {}) : lanes(std::move(those)) {}

  std::vector<SimulatedLane> lanes;
  LaneSet live = ~LaneSet{0};
  double least_slice = 0;  // bytes: a lane gets none of a shorter one
  // The factors by which start-up and bytes take longer with another algorithm than the usual one.
  double other_start = 1;
  double other_bytes = 1;

  // Returns the time that a lane takes for its bytes while `others` more lanes carry some.
  double lane_time(size_t lane, double bytes, int others) const {
    const SimulatedLane& it = lanes[lane];
    if (it.is_stripes && it.turns > 0 && bytes < kCut) return turns_time(it, bytes);
    if (it.is_stripes) return it.start + bytes * it.slope / rate();
    const double burst = std::min(bytes, it.burst);
    return it.start + others * it.start_beside +
           (burst * it.burst_slope + (bytes - burst) * it.slope) * (1 + others * it.slope_beside);
  }

  // Returns the time that each lane takes for its part of the next message. It pays for fewer bytes
  // if it has saved up tokens.
  std::vector<double> times(const Allocation& by, double bytes, bool is_other = false) const {
    std::vector<double> times(lanes.size());
    const int others = std::popcount(lanes_of(by)) - 1;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      const double part = part_of(bytes, by[lane]);
      if (by[lane] == 0 || part < least_slice) continue;
      double paid_bytes = paid(lane, part);
      if (lanes[lane].is_stripes) {
        paid_bytes = 0;
        for (size_t rail = 0; rail < lanes.size(); ++rail) {
          paid_bytes += paid(rail, bytes * share_of_stripes(rail, bytes));
        }
      }
      times[lane] = lane_time(lane, paid_bytes, others);
      if (!is_other) continue;
      const double start = std::min(times[lane], lanes[lanes[lane].is_stripes ? 0 : lane].start);
      times[lane] = other_start * start + other_bytes * (times[lane] - start);
    }
    return times;
  }

  void empty_buckets() { saved_.clear(); }
  // A bucket fills at the lane's rate while other lanes are still busy, and sending empties it.
  void save_up(const Allocation& by, double bytes, double last) {
    saved_.resize(lanes.size());
    double striped = 0;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (lanes[lane].is_stripes) striped = part_of(bytes, by[lane]);
    }
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      const SimulatedLane& it = lanes[lane];
      if (it.is_stripes) continue;
      const double sent = part_of(bytes, by[lane]) + striped * share_of_stripes(lane, bytes);
      saved_[lane] = std::clamp(saved_[lane] + last / it.slope - sent, 0.0, it.bucket);
    }
  }

  double time(const Allocation& allocation, double bytes) const {
    const LaneSet set = lanes_of(allocation);
    double slowest = 0;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (allocation[lane] == 0) continue;
      slowest = std::max(slowest,
                         lane_time(lane, part_of(bytes, allocation[lane]), std::popcount(set) - 1));
    }
    return slowest;
  }

  // Returns the least time of any division among the live lanes: for each set of them, the time in
  // which they get through all the bytes.
  double best_time(double bytes) const {
    double best = 1e300;
    for (LaneSet set = 1; set <= all_lanes(static_cast<int>(lanes.size())); ++set) {
      const bool is_possible = (set & alone()) == 0 || std::has_single_bit(set);
      if ((set & ~live) == 0 && is_possible) best = std::min(best, together(bytes, set));
    }
    return best;
  }

  LaneSet alone() const {
    LaneSet set = 0;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (lanes[lane].is_stripes) set |= lane_bit(static_cast<int>(lane));
    }
    return set;
  }

 private:
  static constexpr double kCut = 64 << 10;     // bytes: shorter messages over stripes take turns
  static constexpr double kTakesTurns = 0.65;  // a part of the fastest rail's rate

  bool is_rail(size_t lane) const {
    return contains(live, static_cast<int>(lane)) && !lanes[lane].is_stripes;
  }
  // Returns the rate of all live lanes that are not stripes, in bytes a nanosecond.
  double rate() const {
    double sum = 0;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (is_rail(lane)) sum += 1 / lanes[lane].slope;
    }
    return sum;
  }
  size_t fastest() const {
    size_t best = lanes.size();
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      const bool is_faster = best == lanes.size() || lanes[lane].slope < lanes[best].slope;
      if (is_rail(lane) && is_faster) best = lane;
    }
    return best;
  }
  bool takes_turns(size_t lane) const {
    return is_rail(lane) && kTakesTurns * lanes[lane].slope <= lanes[fastest()].slope;
  }
  int taking_turns() const {
    int count = 0;
    for (size_t lane = 0; lane < lanes.size(); ++lane) count += takes_turns(lane) ? 1 : 0;
    return count;
  }
  double turns_time(const SimulatedLane& stripes, double bytes) const {
    const double alone = lane_time(fastest(), bytes, 0);
    return taking_turns() > 1 ? alone * stripes.turns : alone;
  }
  // Returns the part of a message over stripes that a rail carries.
  double share_of_stripes(size_t lane, double bytes) const {
    if (!is_rail(lane)) return 0;
    const bool is_by_turns = bytes < kCut && has_turns();
    if (is_by_turns) return takes_turns(lane) ? 1. / taking_turns() : 0;
    return 1 / lanes[lane].slope / rate();
  }
  bool has_turns() const {
    return std::any_of(lanes.begin(), lanes.end(), [](const auto& it) { return it.turns > 0; });
  }
  double paid(size_t lane, double part) const {
    const double saved = lane < saved_.size() ? saved_[lane] : 0;
    return std::max(lanes[lane].least_paid * part, part - saved);
  }
  double together(double bytes, LaneSet set) const {
    return bisect(1e18, [&](double time) {
      double carried = 0;
      for (size_t lane = 0; lane < lanes.size(); ++lane) {
        if (!contains(set, static_cast<int>(lane))) continue;
        carried += bisect(bytes, [&](double part) {
          return lane_time(lane, part, std::popcount(set) - 1) > time;
        });
      }
      return carried >= bytes * (1 - 1e-9);
    });
  }

  // Returns the least x in [0, limit] from which on `holds`.
  template <typename Holds>
  static double bisect(double limit, Holds holds) {
    double low = 0;
    double high = limit;
    while (high - low > 1e-9 * high) {
      const double middle = (low + high) / 2;
      (holds(middle) ? high : low) = middle;
    }
    return high;
  }

  std::vector<double> saved_;  // bytes, by lane: tokens in its bucket
};

// The factors by which readings differ from what lanes take.
class SimulatedNoise {
 public:
  SimulatedNoise(double sigma, bool is_busy, uint32_t seed)
      : sigma_(sigma), is_busy_(is_busy), random_(seed) {}

  // Draws what all lanes of the next operation have in common.
  void next_operation() {
    if (!is_busy_) return;
    const bool stalls = uniform_(random_) < (stall_ > 1 ? kAgain : kStall);
    stall_ = stalls ? 1.2 - kStallMore * std::log(1 - uniform_(random_)) : 1;
  }
  double next_lane() {
    const double noise = stall_ * std::exp(sigma_ * gauss_(random_));
    const bool is_outlier = random_() % 20 == 0 && sigma_ > 0 && !is_busy_;
    return is_outlier ? 3 * noise : noise;
  }

 private:
  static constexpr double kStall = 0.12;
  static constexpr double kAgain = 0.45;
  static constexpr double kStallMore = 0.6;

  double sigma_;
  bool is_busy_;
  double stall_ = 1;
  std::mt19937 random_;
  std::normal_distribution<double> gauss_{0, 1};
  std::uniform_real_distribution<double> uniform_{0, 1};
};

class SimulatedJob {
 public:
  static constexpr int kLag = 2;  // operations from a decision to the step that it announces

  template <typename SomePolicy>
  SimulatedJob(std::vector<SimulatedLane> lanes, SomePolicy*& policy, double noise = 0.02,
               uint32_t seed = 1, bool is_busy = false)
      : SimulatedJob(
            std::move(lanes),
            [&policy](std::vector<std::string> names, LaneSet alone, LaneRates known) {
              const auto count = static_cast<int>(names.size());
              return LoadBalancer(std::move(names), adopt(policy, count, alone, std::move(known)));
            },
            noise, seed, is_busy) {}

  using MakeBalancer =
      std::function<LoadBalancer(std::vector<std::string> names, LaneSet alone, LaneRates rates)>;
  SimulatedJob(std::vector<SimulatedLane> lanes, const MakeBalancer& make, double noise,
               uint32_t seed, bool is_busy = false)
      : network(std::move(lanes)),
        noise_(noise, is_busy, seed),
        seed_(seed),
        timer_(1, count()),
        balancer_(make(names(count()), network.alone(),
                       [this](bool also_tried) { return known(also_tried); })) {}
  SimulatedJob(const SimulatedJob&) = delete;  // the balancer asks this one for rates
  SimulatedJob& operator=(const SimulatedJob&) = delete;

  LaneSimulator network;
  // The rates that stripes have learned, in bytes per second (0: unknown); empty: within a fifth of
  // the truth.
  std::vector<double> rates;
  // The rates that bursts have shown for lanes whose rate is unknown; empty: none.
  std::vector<double> tried;
  bool overlap = false;  // operations overlap, and give no times

  void run(uint64_t bytes, int operations) {
    for (int i = 0; i < operations; ++i) run(bytes);
  }

  // Returns by what fraction the class is now slower than the best possible.
  double excess(uint64_t bytes) const {
    const auto size = static_cast<double>(bytes);
    return network.time(allocation(bytes), size) / network.best_time(size) - 1;
  }

  // Returns the allocation that the class runs by, or returns to after a probe.
  Allocation allocation(uint64_t bytes) const {
    const TableEntry& it = entry(bytes);
    return it.history.back().cause == Cause::kProbe ? it.ran_by : it.allocation;
  }
  const TableEntry& entry(uint64_t bytes) const {
    return balancer_.table().entries.at(size_class_of(bytes));
  }
  // Returns how many changes had other causes than a probe, the return from one, or the start.
  int moves(uint64_t bytes) const {
    const auto found = moves_.find(size_class_of(bytes));
    return found == moves_.end() ? 0 : found->second;
  }
  // Returns the time that probes have added to operations, as a part of all operations' time.
  double probing() const { return probe_time_ / total_time_; }

  void set_live(LaneSet live) {
    network.live = live;
    for (const AllocationChange& change : balancer_.set_live(live)) apply(change);
    announced_.clear();
  }
  std::vector<AllocationChange> resume(const DataLengthTable& table) {
    auto changes = balancer_.resume(table);
    require(changes.ok(), changes.status().ToString());
    for (const AllocationChange& change : *changes) apply(change);
    return *changes;
  }
  const LoadBalancer& balancer() const { return balancer_; }
  // Returns how long the last operation took, in nanoseconds, without the noise.
  double took() const { return took_; }

  // Runs operations until `holds`, at most `limit`; returns how many.
  template <typename Holds>
  int operations_until(uint64_t bytes, int limit, Holds holds) {
    int operations = 0;
    while (operations < limit && !holds()) {
      run(bytes);
      ++operations;
    }
    return operations;
  }

 private:
  int count() const { return static_cast<int>(network.lanes.size()); }
  std::vector<double> known(bool also_tried) const {
    std::vector<double> known = rates.empty() ? learned() : rates;
    for (size_t lane = 0; also_tried && lane < tried.size(); ++lane) {
      if (known[lane] == 0) known[lane] = tried[lane];
    }
    return known;
  }
  std::vector<double> learned() const {
    std::vector<double> learned;
    for (const SimulatedLane& it : network.lanes) learned.push_back(1e9 / it.slope);
    for (size_t lane = 0; lane < learned.size(); ++lane) {
      learned[lane] *= 0.8 + 0.2 * static_cast<double>((lane + seed_) % 3);
    }
    return learned;
  }
  static std::vector<std::string> names(int lanes) {
    std::vector<std::string> names(static_cast<size_t>(lanes));
    for (size_t lane = 0; lane < names.size(); ++lane) names[lane] = "eth" + std::to_string(lane);
    return names;
  }
  template <typename SomePolicy>
  static std::unique_ptr<Policy> adopt(SomePolicy*& policy, int lanes, LaneSet alone,
                                       LaneRates rates) {
    std::unique_ptr<SomePolicy> made;
    if constexpr (std::is_constructible_v<SomePolicy, int, LaneSet, decltype(rates)>) {
      made = std::make_unique<SomePolicy>(lanes, alone, std::move(rates));
    } else if constexpr (std::is_constructible_v<SomePolicy, int, LaneSet>) {
      made = std::make_unique<SomePolicy>(lanes, alone);
    } else {
      made = std::make_unique<SomePolicy>(lanes);
    }
    policy = made.get();
    return made;
  }

  void run(uint64_t bytes) {
    take_steps();
    const SizeClass size_class = size_class_of(bytes);
    if (const auto opened = balancer_.open(bytes)) announce(*opened);
    const auto plan = plans_.find(size_class);
    const Allocation by =
        plan == plans_.end() ? balancer_.allocation(bytes) : plan->second.allocation;
    const uint32_t number = plan == plans_.end() ? 0 : plan->second.number;
    const bool is_other = plan != plans_.end() && plan->second.algorithm != Algorithm::kAuto;
    Reading reading{{0, ++ordinal_}, bytes, number, times(by, bytes, is_other)};
    const auto took =
        static_cast<double>(*std::max_element(reading.lanes.begin(), reading.lanes.end()));
    if (overlap) reading.lanes.assign(by.size(), 0);
    total_time_ += took;
    const TableEntry& entry = balancer_.table().entries.at(size_class);
    const bool is_probe = entry.history.back().cause == Cause::kProbe || number < entry.number;
    if (is_probe && probes_.contains({size_class, number})) {
      const auto size = static_cast<double>(bytes);
      probe_time_ += std::max(0.0, network.time(by, size) - network.time(allocation(bytes), size));
    }
    timer_.set_operations(size_class, balancer_.window_operations(size_class));
    const auto window = timer_.add(0, reading);
    require(window.ok(), window.status().ToString());
    if (!*window) return;
    if (const auto change = balancer_.on_window(**window)) announce(*change);
  }

  LaneTimes times(const Allocation& by, uint64_t bytes, bool is_other) {
    const LaneSet set = lanes_of(by);
    require((set & network.alone()) == 0 || std::has_single_bit(set), to_string(by));
    const auto size = static_cast<double>(bytes);
    noise_.next_operation();
    took_ = 0;
    LaneTimes seen;
    const std::vector<double> times = network.times(by, size, is_other);
    for (const double time : times) {
      seen.push_back(std::llround(time * noise_.next_lane()));
      took_ = std::max(took_, time);
    }
    network.save_up(by, size, static_cast<double>(*std::max_element(seen.begin(), seen.end())));
    return seen;
  }

  void announce(const AllocationChange& change) {
    const Cause cause = balancer_.table().entries.at(change.size_class).history.back().cause;
    if (cause == Cause::kProbe) {
      probes_.emplace(change.size_class, change.number);
    } else if (cause != Cause::kReturn && cause != Cause::kStart) {
      ++moves_[change.size_class];
    }
    announced_.emplace_back(ordinal_ + kLag, change);
  }
  void take_steps() {
    while (!announced_.empty() && announced_.front().first <= ordinal_) {
      apply(announced_.front().second);
      announced_.pop_front();
    }
  }
  void apply(const AllocationChange& change) {
    plans_[change.size_class] = change;
    timer_.set_operations(change.size_class, balancer_.window_operations(change.size_class));
  }

  SimulatedNoise noise_;
  uint32_t seed_;
  Timer timer_;
  LoadBalancer balancer_;
  uint64_t ordinal_ = 0;
  std::deque<std::pair<uint64_t, AllocationChange>> announced_;  // each with its first operation
  std::map<SizeClass, AllocationChange> plans_;
  std::set<std::pair<SizeClass, uint32_t>> probes_;
  std::map<SizeClass, int> moves_;
  double took_ = 0;
  double total_time_ = 0;
  double probe_time_ = 0;
};

}  // namespace nezha
