// SPDX-License-Identifier: Apache-2.0
#include "control/lane_trial.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace nezha {
namespace {

constexpr int kMostGentle = 8;       // windows
constexpr double kMostLonger = 1.3;  // than before: no lane that gets a little more does that
constexpr double kLittleMore = 0.2;
constexpr double kMore = 0.5;
constexpr double kMostMore = 1;
constexpr double kStillEarly = 0.8;  // of the time of the last one
// What was saved up lets no lane be that early with more, and hardly one in a window that began
// when half of it was spent.
constexpr double kFarEarly = 0.4;
constexpr double kEarlyByHalf = 0.65;
constexpr double kWorth = 0.05;      // by which operations are shorter if it was worth it
constexpr double kMostEarly = 0.95;  // of a message, for lanes that are
constexpr double kLeastRatio = 0.02;

// One that took no part is not: a message is too short to give it more.
bool is_early(const Window& window, int lane) {
  const auto time = static_cast<double>(window.lanes[static_cast<size_t>(lane)].mean);
  return time > 0 && time < kStillEarly * static_cast<double>(slowest(window));
}

}  // namespace

double part_of_slowest(const Window& window, LaneSet lanes) {
  Nanos latest = 0;
  for (int lane = 0; lane < static_cast<int>(window.lanes.size()); ++lane) {
    if (contains(lanes, lane))
      latest = std::max(latest, window.lanes[static_cast<size_t>(lane)].mean);
  }
  return static_cast<double>(latest) / static_cast<double>(slowest(window));
}

LaneTrial::LaneTrial(const Window& window, Allocation home, LaneSet early, bool is_gentle,
                     std::vector<double> before)
    : lanes_(early),
      home_(std::move(home)),
      before_(is_gentle ? std::move(before) : std::vector<double>()),
      best_time_(static_cast<double>(slowest(window))),
      savings_(is_gentle ? kMostSaved : 0) {}

Allocation LaneTrial::raise(const Allocation& ran_by) {
  more_ = is_gentle() ? kLittleMore : std::clamp(2 * more_, kMore, kMostMore);
  std::vector<double> weights(ran_by.begin(), ran_by.end());
  for (size_t lane = 0; lane < weights.size(); ++lane) {
    if (contains(lanes_, static_cast<int>(lane))) weights[lane] *= 1 + more_;
  }
  return is_gentle() ? in_proportion(weights) : at_least_before(in_proportion(weights));
}

// The lanes leave the others what those have now, in proportion.
Allocation LaneTrial::at_least_before(const Allocation& raised) {
  std::vector<double> parts;
  double early = 0;
  double others = 0;
  bool is_more = false;
  for (size_t lane = 0; lane < raised.size(); ++lane) {
    double part = part_of(1, raised[lane]);
    const bool is_early = contains(lanes_, static_cast<int>(lane));
    if (is_early && lane < before_.size() && before_[lane] > part) {
      part = before_[lane];
      is_more = true;
    }
    (is_early ? early : others) += part;
    parts.push_back(part);
  }
  if (!is_more || early >= kMostEarly) return raised;
  is_back_ = true;
  for (size_t lane = 0; lane < parts.size(); ++lane) {
    if (!contains(lanes_, static_cast<int>(lane))) parts[lane] *= (1 - early) / others;
  }
  return in_proportion(parts);
}

bool LaneTrial::look_at(const Window& window, const Allocation& ran_by) {
  if (is_gentle()) {
    const double most = savings_ > kMostSaved / 2 ? kFarEarly : kEarlyByHalf;
    savings_ -= window.operations * least_more(window, ran_by);
    const bool is_far_early = part_of_slowest(window, lanes_) < most && is_as_long(window);
    if (++gentle_ == kMostGentle || is_far_early) savings_ = 0;
    return false;
  }
  const auto took = static_cast<double>(slowest(window));
  if (took >= (1 - kWorth) * best_time_) return false;
  best_time_ = took;
  was_worth_it_ = true;
  return true;
}

// Bytes of an operation that a lane gets more than at home, the one that gets the least.
double LaneTrial::least_more(const Window& window, const Allocation& ran_by) const {
  const auto bytes = static_cast<double>(window.bytes);
  double least = bytes;
  for (size_t lane = 0; lane < ran_by.size(); ++lane) {
    if (!contains(lanes_, static_cast<int>(lane))) continue;
    least = std::min(least, part_of(bytes, ran_by[lane]) - part_of(bytes, home_[lane]));
  }
  return least;
}

// Or else it is another lane that has become slower.
bool LaneTrial::is_as_long(const Window& window) const {
  return static_cast<double>(slowest(window)) <= kMostLonger * best_time_;
}

bool LaneTrial::may_go_on(const Window& window) const {
  if (is_back_ || (is_gentle() && !is_as_long(window))) return false;
  for (int lane = 0; lane < static_cast<int>(window.lanes.size()); ++lane) {
    if (contains(lanes_, lane) && !is_early(window, lane)) return false;
  }
  return true;
}

bool LaneTrial::was_late(const Window& window) const {
  for (int lane = 0; lane < static_cast<int>(window.lanes.size()); ++lane) {
    const Nanos time = window.lanes[static_cast<size_t>(lane)].mean;
    if (time == slowest(window)) return contains(lanes_, lane);
  }
  return false;
}

LaneChanges LaneTrial::changes(const LaneModel& model, const Window& window,
                               const Allocation& ran_by) const {
  const LaneSet set = lanes_of(ran_by);
  LaneChanges changes;
  for (int lane = 0; lane < static_cast<int>(ran_by.size()); ++lane) {
    if (!contains(lanes_ & set, lane)) continue;
    const auto line = model.line(window.size_class, set, lane);
    if (!line) continue;
    const auto index = static_cast<size_t>(lane);
    const auto time =
        static_cast<double>(is_early(window, lane) ? slowest(window) : window.lanes[index].mean);
    const double part = part_of(static_cast<double>(window.bytes), ran_by[index]);
    const double ratio = (time - line->start) / (line->slope * part);
    changes.push_back({lane, std::clamp(ratio, kLeastRatio, 1.0)});
  }
  return changes;
}

}  // namespace nezha
