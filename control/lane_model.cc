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
constexpr double kFade = 0.9;  // of an observation's weight, with each that follows
constexpr double kPace = 8;    // the power of how late a lane was by which it is trusted
// Of a window's time: what a lane took that was through earlier may be owed to what it had saved
// up.
constexpr double kBelieved = 0.9;
constexpr double kBelievedFirst = 0.8;  // where nothing was known of it before
constexpr double kFlattered = 0.5;      // unless it was later than that: rates are off by as much
constexpr double kLeastError = 0.02;  // of a window's time: few operations seem to agree by chance
constexpr double kMostNoise = 0.25;   // a window that is off by more is a stall, or no noise
constexpr double kNoiseGain = 0.1;    // of the noise's moving average
constexpr double kElsewhere = 0.1;    // the error of what is concluded from other sets and classes
constexpr double kLeastPart = 1. / 128;
constexpr double kSecondHand = 0.3;  // the error of what another model knows
constexpr int kNear = 2;             // classes from which a set's times are borrowed at first

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
  std::vector<std::optional<Line>> lines(ran_by.size());  // of those that are not to be early
  for (int lane = 0; lane < lanes_ && !may_be_early; ++lane) {
    if (contains(set, lane))
      lines[static_cast<size_t>(lane)] = measured(window.size_class, set, lane);
  }
  ++order_;
  Observations& kept = known.sets[set];
  Observation& latest = kept.emplace_back(Observation{order_, {}});
  for (size_t lane = 0; lane < ran_by.size(); ++lane) {
    auto time = static_cast<double>(std::max<Nanos>(1, window.lanes[lane].mean));
    const double error = static_cast<double>(window.lanes[lane].error) / time;
    const double part = part_of(static_cast<double>(window.bytes), ran_by[lane]);
    if (!may_be_early && time < kBelieved * last) {
      const double first = time > kFlattered * last ? time : kBelievedFirst * last;
      const double least = lines[lane] ? lines[lane]->at(part) : first;
      time = std::clamp(least, time, last);
    }
    latest.lanes.push_back(
        {{part, time, std::max(error, noise), std::pow(time / last, kPace)}, order_});
  }
  if (kept.size() > kKept) kept.pop_front();
}

void LaneModel::assume(SizeClass size_class, const LaneModel& other, double ratio) {
  const auto known = other.classes_.find(size_class);
  if (known == other.classes_.end()) return;
  for (const auto& [set, observations] : known->second.sets) {
    if (has_measured(size_class, set)) continue;
    Observation assumed = observations.back();
    assumed.order = ++order_;
    for (Measured& lane : assumed.lanes) {
      lane.order = order_;
      lane.time *= ratio;
      lane.error = std::max(lane.error, kSecondHand);
    }
    classes_[size_class].sets[set].push_back(std::move(assumed));
  }
}

void LaneModel::forget(SizeClass size_class, LaneSet set) { classes_[size_class].sets.erase(set); }

void LaneModel::lane_changed(SizeClass size_class, int lane, double ratio) {
  const auto index = static_cast<size_t>(lane);
  for (auto& [set, observations] : classes_[size_class].sets) {
    if (!contains(set, lane)) continue;
    const double start = measured(size_class, set, lane)->start;
    for (Observation& observation : observations) {
      Sample& it = observation.lanes[index];
      it.time = start + std::max(kLeastPart * it.time, it.time - start) * ratio;
    }
  }
  changed_[index] = order_;
}

bool LaneModel::knows(SizeClass size_class, LaneSet set) const {
  for (int lane = 0; lane < lanes_; ++lane) {
    if (contains(set, lane) && !measured(size_class, set, lane) &&
        !borrowed(size_class, set, lane, false)) {
      return false;
    }
  }
  return true;
}

bool LaneModel::has_measured(SizeClass size_class, LaneSet set) const {
  return find(size_class, set) != nullptr;
}

uint64_t LaneModel::age(SizeClass size_class, LaneSet set) const {
  return order_ - last_measured(size_class, set);
}

// 0 for never.
uint64_t LaneModel::last_measured(SizeClass size_class, LaneSet set) const {
  const Observations* observations = find(size_class, set);
  return observations == nullptr ? 0 : observations->back().order;
}

const LaneModel::Observations* LaneModel::find(SizeClass size_class, LaneSet set) const {
  const auto known = classes_.find(size_class);
  if (known == classes_.end()) return nullptr;
  const auto observations = known->second.sets.find(set);
  return observations == known->second.sets.end() ? nullptr : &observations->second;
}

// Of a lane in a set, the latest first; the one trusted most has the weight 1.
RecycledVector<Sample> LaneModel::samples(const Observations& observations, size_t lane) const {
  RecycledVector<Sample> samples;
  double fade = 1;
  double most = 0;
  for (auto it = observations.rbegin(); it != observations.rend(); ++it, fade *= kFade) {
    const Measured& own = it->lanes[lane];
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
  const auto index = static_cast<size_t>(lane);
  RecycledVector<Sample> samples = this->samples(*observations, index);
  const auto add = [&](const Observations* elsewhere) {
    if (elsewhere == nullptr) return;
    Measured other = elsewhere->back().lanes[index];
    const Sample& own = samples.front();
    if (other.order <= changed_[index]) return;
    if ((other.bytes - own.bytes) * (other.time - own.time) <= 0) return;  // another start-up there
    other.error = std::hypot(other.error, kElsewhere);
    samples.push_back(other);
  };
  for (const auto& [other, elsewhere] : classes_.at(size_class).sets) {
    const bool is_part = other != set && (other & ~set) == 0;
    if (is_part && contains(other, lane)) add(&elsewhere);
  }
  if (size_class > 0) add(find(size_class - 1, set));
  add(find(size_class + 1, set));
  return fit_line(samples);
}

// In between the largest set measured of which this one has more lanes, and the smallest of which
// it has fewer.
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

// From the nearest class.
std::optional<Line> LaneModel::borrowed(SizeClass size_class, LaneSet set, int lane,
                                        bool also_guesses) const {
  const auto borrower = classes_.find(size_class);
  if (borrower != classes_.end() && !borrower->second.borrows) return std::nullopt;
  std::optional<Line> nearest;
  int distance = also_guesses ? kSizeClasses : kNear + 1;
  for (const auto& [other, known] : classes_) {
    if (std::abs(other - size_class) >= distance || other == size_class) continue;
    const bool is_fresh = last_measured(other, set) > changed_[static_cast<size_t>(lane)];
    if (!is_fresh && !also_guesses) continue;
    std::optional<Line> line = measured(other, set, lane);
    if (!line && also_guesses) line = interpolated(other, set, lane);
    if (!line) continue;
    nearest = line;
    distance = std::abs(other - size_class);
  }
  return nearest;
}

std::optional<Line> LaneModel::line(SizeClass size_class, LaneSet set, int lane) const {
  if (auto line = measured(size_class, set, lane)) return line;
  if (auto line = borrowed(size_class, set, lane, false)) return line;
  if (auto line = interpolated(size_class, set, lane)) return line;
  return borrowed(size_class, set, lane, true);
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
  return together(bytes, set, [&](int lane) { return line(size_class, set, lane); });
}

std::optional<Split> LaneModel::unhindered(SizeClass size_class, double bytes, LaneSet set) const {
  return together(bytes, set, [&](int lane) { return line(size_class, lane_bit(lane), lane); });
}

std::optional<Split> LaneModel::together(double bytes, LaneSet set, LineOf line_of) const {
  RecycledVector<Line> lines(static_cast<size_t>(lanes_));  // slope 0 where not in the set
  double rate = 0;                                          // bytes a nanosecond
  double head_start = 0;                                    // bytes that start-up costs take away
  Split split;
  split.set = set;
  for (int lane = 0; lane < lanes_; ++lane) {
    if (!contains(set, lane)) continue;
    const auto known = line_of(lane);
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
