#include "control/lane_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdlib>

namespace nezha {
namespace {

constexpr size_t kKept = 8;            // observations of a set in a class
constexpr double kSame = 1.15;         // lengths that differ by less are measured together
constexpr double kSharp = 0.25;        // of what bytes may take: the error of a slope
constexpr double kLeastError = 0.003;  // of a time: few operations seem to agree by chance
constexpr double kLeastSlope = 0.02;   // of what it is when bytes take all of the time
constexpr double kGuess = 0.5;         // the same, by smaller sets, where lanes are not slowed down
constexpr double kLeastPart = 1. / 128;
constexpr int kNear = 2;  // classes from which a set's times are borrowed at first

double ratio(double a, double b) { return a > b ? a / b : b / a; }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void LaneModel::learn(const Window& window, const Allocation& ran_by) {
  Observation observation{++order_, window.operations, {}};
  for (size_t lane = 0; lane < ran_by.size(); ++lane) {
    const auto time = static_cast<double>(std::max<Nanos>(1, window.lanes[lane].mean));
    observation.points.push_back({part_of(static_cast<double>(window.bytes), ran_by[lane]), time,
                                  static_cast<double>(window.lanes[lane].error) / time});
  }
  Observations& kept = classes_[window.size_class].sets[lanes_of(ran_by)];
  std::erase_if(kept, [&](const Observation& old) { return is_stale(old, lanes_of(ran_by)); });
  kept.push_back(std::move(observation));
  if (kept.size() > kKept) kept.pop_front();
}

// Whether a lane of the set has changed since.
bool LaneModel::is_stale(const Observation& observation, LaneSet set) const {
  for (int lane = 0; lane < lanes_; ++lane) {
    const uint64_t changed = changed_[static_cast<size_t>(lane)];
    if (contains(set, lane) && observation.order <= changed) return true;
  }
  return false;
}

void LaneModel::forget(SizeClass size_class, LaneSet set) { classes_[size_class].sets.erase(set); }

void LaneModel::lane_changed(SizeClass size_class, int lane, double ratio) {
  const auto index = static_cast<size_t>(lane);
  changed_[index] = order_;
  for (auto& [set, observations] : classes_[size_class].sets) {
    for (Observation& observation : observations) observation.points[index].time *= ratio;
  }
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

// The mean of what was measured at about the latest length.
LaneModel::Point LaneModel::anchor(const Observations& observations, size_t lane) {
  const double latest = observations.back().points[lane].bytes;
  Point sum;
  double operations = 0;
  for (const Observation& observation : observations) {
    const Point& point = observation.points[lane];
    if (ratio(point.bytes, latest) > kSame) continue;
    const double weight = observation.operations;
    sum.bytes += weight * point.bytes;
    sum.time += weight * point.time;
    sum.error += std::pow(weight * point.error, 2);
    operations += weight;
  }
  return {sum.bytes / operations, sum.time / operations, std::sqrt(sum.error) / operations};
}

double LaneModel::slope(SizeClass size_class, LaneSet set, size_t lane, const Point& from) const {
  const double steepest = from.time / from.bytes;  // a start-up cost is not negative
  const std::vector<double> own = secants(size_class, set, lane, from);
  if (!own.empty()) return std::clamp(median(own), kLeastSlope * steepest, steepest);
  const std::vector<double> others = secants_of_smaller(size_class, set, lane, from);
  return others.empty() ? steepest : std::clamp(median(others), kGuess * steepest, steepest);
}

// None if the lengths are too close for the error of the times.
std::optional<double> LaneModel::secant(const Point& from, const Point& to) {
  const double error =
      std::hypot(std::max(from.error, kLeastError), std::max(to.error, kLeastError));
  if (error > kSharp * std::fabs(to.bytes / from.bytes - 1)) return std::nullopt;
  return (to.time - from.time) / (to.bytes - from.bytes);
}

std::vector<double> LaneModel::secants(SizeClass size_class, LaneSet set, size_t lane,
                                       const Point& from) const {
  std::vector<double> slopes;
  const auto add = [&](uint64_t order, const Point& to) {
    const auto slope = secant(from, to);
    if (order > changed_[lane] && slope) slopes.push_back(*slope);
  };
  for (const Observation& observation : *find(size_class, set)) {
    add(observation.order, observation.points[lane]);
  }
  for (const int other : {size_class - 1, size_class + 1}) {
    if (other < 0 || other >= kSizeClasses) continue;
    const Observations* observations = find(static_cast<SizeClass>(other), set);
    if (observations != nullptr) add(observations->back().order, anchor(*observations, lane));
  }
  return slopes;
}

std::vector<double> LaneModel::secants_of_smaller(SizeClass size_class, LaneSet set, size_t lane,
                                                  const Point& from) const {
  std::vector<double> slopes;
  for (const auto& [other, observations] : classes_.at(size_class).sets) {
    const bool is_fresh = observations.back().order > changed_[lane];
    const bool is_part = other != set && (other & ~set) == 0;
    if (!is_part || !contains(other, static_cast<int>(lane)) || !is_fresh) continue;
    if (const auto slope = secant(from, anchor(observations, lane))) slopes.push_back(*slope);
  }
  return slopes;
}

std::optional<Line> LaneModel::measured(SizeClass size_class, LaneSet set, int lane) const {
  const Observations* observations = find(size_class, set);
  if (observations == nullptr) return std::nullopt;
  const auto index = static_cast<size_t>(lane);
  const Point point = anchor(*observations, index);
  const double slope = this->slope(size_class, set, index, point);
  return Line{point.time - slope * point.bytes, slope, point.error};
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
  std::vector<Line> lines(static_cast<size_t>(lanes_));  // slope 0 where not in the set
  double rate = 0;                                       // bytes a nanosecond
  double head_start = 0;                                 // bytes that start-up costs take away
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
  std::vector<double> parts;
  for (const Line& line : lines) {
    parts.push_back(line.slope == 0 ? 0 : (split.time - line.start) / line.slope);
    if (line.slope != 0 && parts.back() < kLeastPart * bytes) return std::nullopt;
  }
  split.allocation = in_proportion(parts);
  return split;
}

}  // namespace nezha
