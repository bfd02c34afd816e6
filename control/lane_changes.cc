// SPDX-License-Identifier: Apache-2.0
#include "control/lane_changes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace nezha {
namespace {

// A lane that is off by more errors, in logarithms, has changed: by no less and no more than that.
constexpr double kSigmas = 3;
constexpr double kDrift = 0.10;
constexpr double kMostDrift = 0.6;
// And by no less if it ended early beside others: it may live on what it has saved up.
constexpr double kEarly = 0.5;
constexpr double kLeastChange = 0.02;

// What a lane of a window took, beside what the model said.
struct Lateness {
  int lane = 0;
  double off = 0;     // the logarithm of their ratio
  double error = 0;   // of it
  double change = 0;  // how many times as long a byte takes
};

std::vector<Lateness> lateness(const LaneModel& model, const Window& window,
                               const Allocation& ran_by) {
  std::vector<Lateness> readings;
  const LaneSet set = lanes_of(ran_by);
  if (!model.has_measured(window.size_class, set)) return readings;
  for (int lane = 0; lane < static_cast<int>(ran_by.size()); ++lane) {
    const auto index = static_cast<size_t>(lane);
    if (!contains(set, lane)) continue;
    const Line line = *model.line(window.size_class, set, lane);
    const double expected = line.at(part_of(static_cast<double>(window.bytes), ran_by[index]));
    const auto time = static_cast<double>(window.lanes[index].mean);
    const double error = static_cast<double>(window.lanes[index].error) / time;
    readings.push_back({lane, std::log(time / expected),
                        std::hypot(error, line.error, model.noise(window.size_class)),
                        std::max(kLeastChange, (time - line.start) / (expected - line.start))});
  }
  return readings;
}

}  // namespace

LaneChanges lane_changes(const LaneModel& model, const Window& window, const Allocation& ran_by,
                         LaneSet suspects) {
  const std::vector<Lateness> readings = lateness(model, window, ran_by);
  // What all lanes are late by is the ranks', or the machine's: not a lane's.
  double common = 0;
  if (readings.size() > 1) {
    common = std::min_element(readings.begin(), readings.end(), [](const auto& a, const auto& b) {
               return std::fabs(a.off) < std::fabs(b.off);
             })->off;
  }
  LaneChanges changes;
  for (const Lateness& it : readings) {
    const double off = it.off - common;
    const double late = std::clamp(kSigmas * it.error, kDrift, kMostDrift);
    const double early = readings.size() > 1 ? std::max(late, kEarly) : late;
    if (contains(suspects, it.lane) && (off > late || off < -early)) {
      changes.push_back({it.lane, it.change});
    }
  }
  return changes;
}

bool are_early(const LaneChanges& changes, LaneSet set) {
  return !changes.empty() && std::popcount(set) > 1 &&
         std::all_of(changes.begin(), changes.end(), [](const auto& it) { return it.ratio < 1; });
}

LaneSet lanes_of(const LaneChanges& changes) {
  LaneSet set = 0;
  for (const LaneChange& change : changes) set |= lane_bit(change.lane);
  return set;
}

}  // namespace nezha
