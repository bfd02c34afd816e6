// SPDX-License-Identifier: Apache-2.0
#include "control/lane_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdlib>

namespace nezha {
namespace {

constexpr size_t kKept = 12;   // observations of a set in a class
constexpr double kFade = 0.9;  // each observation multiplies the weight of the earlier ones by this
// An observation of a lane has as weight this power of the lane's time in proportion to the
// window's.
constexpr double kPace = 8;
// A lane that took less than this part of a window's time finished early.
constexpr double kBelieved = 0.9;
// The least relative error of a window's time, because a few operations may agree by chance.
constexpr double kLeastError = 0.02;
// A window that deviates by more was stalled, or shows a change rather than noise.
constexpr double kMostNoise = 0.25;
constexpr double kNoiseGain = 0.1;       // the gain of the moving average of the noise
constexpr double kLeastPart = 1. / 128;  // the least part of a message that a lane is given

}  // namespace

void LaneModel::learn(const Window& window, const Allocation& ran_by, bool may_be_early) {
  const LaneSet set = lanes_of(ran_by);
  Class& known = classes_[window.size_class];
  const auto last = static_cast<double>(std::max<Nanos>(1, slowest(window)));
  if (const auto expected = predict(window.size_class, static_cast<double>(window.bytes), ran_by);
      expected && find(window.size_class, set) != nullptr) {
    const double off = std::min(kMostNoise, std::fabs(std::log(last / expected->time)));
    known.noise = std::max(kLeastError, std::lerp(known.noise, off, kNoiseGain));
  }
  const double noise =
      known.noise * std::sqrt(Timer::kOperations / static_cast<double>(window.operations));
  RecycledVector<double> least(ran_by.size());  // nanoseconds, of lanes that must not be early
  for (int lane = 0; lane < lanes_ && !may_be_early; ++lane) {
    const auto before = contains(set, lane) ? measured(window.size_class, set, lane) : std::nullopt;
    const auto index = static_cast<size_t>(lane);
    if (before) {
      least[index] =
          std::min(last, before->at(part_of(static_cast<double>(window.bytes), ran_by[index])));
    }
  }
  ++order_;
  Observations& kept = known.sets[set];
  Observation& latest = kept.emplace_back();
  for (size_t lane = 0; lane < ran_by.size(); ++lane) {
    auto time = static_cast<double>(std::max<Nanos>(1, window.lanes[lane].mean));
    const double error = static_cast<double>(window.lanes[lane].error) / time;
    const double part = part_of(static_cast<double>(window.bytes), ran_by[lane]);
    if (time < kBelieved * last) time = std::max(time, least[lane]);
    latest.push_back({{part, time, std::max(error, noise), std::pow(time / last, kPace)}, order_});
  }
  if (kept.size() > kKept) kept.pop_front();
}

void LaneModel::lane_changed(SizeClass size_class, int lane, double ratio) {
  const auto index = static_cast<size_t>(lane);
  for (auto& [set, observations] : classes_[size_class].sets) {
    if (!contains(set, lane)) continue;
    const double start = measured(size_class, set, lane)->start;
    for (Observation& observation : observations) {
      Sample& it = observation[index];
      it.time = start + std::max(kLeastPart * it.time, it.time - start) * ratio;
    }
  }
  changed_[index] = order_;
}

void LaneModel::forget(SizeClass size_class, LaneSet lanes) {
  std::erase_if(classes_[size_class].sets,
                [lanes](const auto& it) { return (it.first & lanes) != 0; });
  for (int lane = 0; lane < lanes_; ++lane) {
    if (contains(lanes, lane)) changed_[static_cast<size_t>(lane)] = order_;
  }
}

bool LaneModel::has_measured(SizeClass size_class, LaneSet set) const {
  return find(size_class, set) != nullptr;
}

const LaneModel::Observations* LaneModel::find(SizeClass size_class, LaneSet set) const {
  const auto known = classes_.find(size_class);
  if (known == classes_.end()) return nullptr;
  const auto observations = known->second.sets.find(set);
  return observations == known->second.sets.end() ? nullptr : &observations->second;
}

// Returns the samples of a lane in a set, the latest first. The largest weight is 1.
RecycledVector<Sample> LaneModel::samples(const Observations& observations, size_t lane) const {
  RecycledVector<Sample> samples;
  double fade = 1;
  double most = 0;
  for (auto it = observations.rbegin(); it != observations.rend(); ++it, fade *= kFade) {
    const Measured& own = (*it)[lane];
    if (!samples.empty() && own.order <= changed_[lane]) break;
    samples.push_back(own);
    samples.back().weight *= fade;
    most = std::max(most, samples.back().weight);
  }
  for (Sample& sample : samples) sample.weight /= most;
  return samples;
}

std::optional<Line> LaneModel::measured(SizeClass size_class, LaneSet set, int lane) const {
  const Observations* observations = find(size_class, set);
  if (observations == nullptr) return std::nullopt;
  return fit_line(samples(*observations, static_cast<size_t>(lane)));
}

// Interpolates between the largest measured set within this one and the smallest measured set
// around it.
std::optional<Line> LaneModel::interpolated(SizeClass size_class, LaneSet set, int lane) const {
  const auto known = classes_.find(size_class);
  if (known == classes_.end()) return std::nullopt;
  LaneSet below = 0;
  LaneSet above = 0;
  for (const auto& [other, observations] : known->second.sets) {
    if (!contains(other, lane)) continue;
    if ((other & ~set) == 0 && std::popcount(other) > std::popcount(below)) below = other;
    const bool has_all = (set & ~other) == 0;
    if (has_all && (above == 0 || std::popcount(other) < std::popcount(above))) above = other;
  }
  if (below == 0 && above == 0) return std::nullopt;
  if (below == 0 || above == 0) return measured(size_class, below | above, lane);
  const Line low = *measured(size_class, below, lane);
  const Line high = *measured(size_class, above, lane);
  const double way = below == above
                         ? 0
                         : static_cast<double>(std::popcount(set) - std::popcount(below)) /
                               (std::popcount(above) - std::popcount(below));
  return Line{std::lerp(low.start, high.start, way), std::lerp(low.slope, high.slope, way),
              std::max(low.error, high.error)};
}

// Returns the line of the nearest class in which there is one.
std::optional<Line> LaneModel::borrowed(SizeClass size_class, LaneSet set, int lane) const {
  std::optional<Line> nearest;
  int distance = kSizeClasses;
  for (const auto& [other, known] : classes_) {
    if (std::abs(other - size_class) >= distance || other == size_class) continue;
    std::optional<Line> line = measured(other, set, lane);
    if (!line) line = interpolated(other, set, lane);
    if (!line) continue;
    nearest = line;
    distance = std::abs(other - size_class);
  }
  return nearest;
}

std::optional<Line> LaneModel::line(SizeClass size_class, LaneSet set, int lane) const {
  if (auto line = measured(size_class, set, lane)) return line;
  if (auto line = interpolated(size_class, set, lane)) return line;
  return borrowed(size_class, set, lane);
}

std::optional<Split> LaneModel::predict(SizeClass size_class, double bytes,
                                        const Allocation& allocation) const {
  Split split{lanes_of(allocation), allocation};
  for (int lane = 0; lane < lanes_; ++lane) {
    if (!contains(split.set, lane)) continue;
    const auto known = line(size_class, split.set, lane);
    if (!known) return std::nullopt;
    split.time =
        std::max(split.time, known->at(part_of(bytes, allocation[static_cast<size_t>(lane)])));
    split.error = std::max(split.error, known->error);
  }
  return split;
}

std::optional<Split> LaneModel::finish_together(SizeClass size_class, double bytes,
                                                LaneSet set) const {
  RecycledVector<Line> lines(static_cast<size_t>(lanes_));  // the slope is 0 outside the set
  double rate = 0;                                          // bytes per nanosecond
  double head_start = 0;  // bytes that could be sent in the start-up times
  Split split;
  split.set = set;
  for (int lane = 0; lane < lanes_; ++lane) {
    if (!contains(set, lane)) continue;
    const auto known = line(size_class, set, lane);
    if (!known) return std::nullopt;
    rate += 1 / known->slope;
    head_start += known->start / known->slope;
    split.error = std::max(split.error, known->error);
    lines[static_cast<size_t>(lane)] = *known;
  }
  split.time = (bytes + head_start) / rate;
  RecycledVector<double> parts;
  for (const Line& line : lines) {
    parts.push_back(line.slope == 0 ? 0 : (split.time - line.start) / line.slope);
    if (line.slope != 0 && parts.back() < kLeastPart * bytes) return std::nullopt;
  }
  split.allocation = in_proportion(parts);
  return split;
}

}  // namespace nezha
