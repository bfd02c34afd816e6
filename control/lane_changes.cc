// SPDX-License-Identifier: Apache-2.0
#include "control/lane_changes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace nezha {
namespace {

// A lane has changed if the logarithm of its time deviates by more than this many errors. The
// threshold is at least kDrift and at most kMostDrift.
constexpr double kSigmas = 3;
constexpr double kDrift = 0.10;
constexpr double kMostDrift = 0.6;
// The least threshold for a lane that finished before others, because it may have used what it had
// saved up.
constexpr double kEarly = 0.5;
constexpr double kLeastChange = 0.02;

// The time of a lane in a window in proportion to what the model predicted.
struct Lateness {
  int lane = 0;
  double off = 0;     // the logarithm of that ratio
  double error = 0;   // the logarithm's
  double change = 0;  // the time of a byte in proportion to the time before
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
  // If all lanes are late, the part that they have in common comes from the ranks or the machine.
  double common = 0;
  if (readings.size() > 1) {
    const auto [least, most] =
        std::minmax_element(readings.begin(), readings.end(),
                            [](const auto& a, const auto& b) { return a.off < b.off; });
    common = std::max(0.0, least->off) + std::min(0.0, most->off);
  }
  LaneChanges late;
  LaneChanges early;
  for (const Lateness& it : readings) {
    const double off = it.off - common;
    const double most = std::clamp(kSigmas * it.error, kDrift, kMostDrift);
    const double least = readings.size() > 1 ? std::max(most, kEarly) : most;
    if (!contains(suspects, it.lane)) continue;
    if (off > most) late.push_back({it.lane, it.change});
    if (off < -least) early.push_back({it.lane, it.change});
  }
  return late.empty() ? early : late;
}

bool are_early(const LaneChanges& changes, LaneSet set) {
  return !changes.empty() && std::popcount(set) > 1 &&
         std::all_of(changes.begin(), changes.end(), [](const auto& it) { return it.ratio < 1; });
}

}  // namespace nezha
