// SPDX-License-Identifier: Apache-2.0
#include "control/exploration.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace nezha {
namespace {

// Such messages keep rails busy for long enough to tell at what rates they go on.
constexpr SizeClass kLong = 18;
// A lane that takes so much longer than another beside it is not the faster one alone.
constexpr double kDominated = 1.25;
// When a lane alone takes so much longer than several, no lane alone is the best.
constexpr double kHopeless = 1.5;

// How far apart rates are where equal parts take far longer than a division that is off by half.
constexpr double kFarApart = 4;
constexpr double kLeastRate = 1. / 64;  // of the fastest lane's: less may be too short to be cut

}  // namespace

Allocation Exploration::first(SizeClass size_class) const {
  return next(size_class, static_cast<double>(typical_bytes(size_class)))
      .value_or(policy_.unlearned());
}

std::optional<Allocation> Exploration::next(SizeClass size_class, double bytes) const {
  if (policy_.sharing() == 0) return unknown_alone(size_class, policy_.live());
  if (!choice_.is_spread(size_class)) return unknown_alone(size_class, policy_.sharing());
  if (size_class >= SplitChoice::kStriped) {
    if (auto striped = unknown_alone(size_class, policy_.live() & policy_.alone())) return striped;
  }
  const auto rated = by_rates(size_class);
  const Allocation first = rated.value_or(equal_parts(policy_.sharing(), policy_.lanes()));
  if (!model_.predict(size_class, bytes, first) || !choice_.in_steps(size_class, bytes, first))
    return first;
  const auto lane = promising_alone(size_class, bytes);
  if (!lane) return std::nullopt;
  const double part = part_of(1, first[static_cast<size_t>(*lane)]);
  const double time = model_.predict(size_class, bytes, first)->time;
  const bool is_hopeless =
      teaches_rates(size_class) ? part * kDominated < 1 : are_rates_decisive(bytes, time);
  if (rated && is_hopeless) return std::nullopt;
  return all_on(*lane, policy_.lanes());
}

// None if a lane's rate is unknown. What bursts have shown, or what shorter messages taught, is off
// by half, and is taken where lanes are further apart, though none gets next to nothing.
std::optional<Allocation> Exploration::by_rates(SizeClass size_class) const {
  if (rates_ == nullptr || policy_.alone() == 0) return std::nullopt;
  if (teaches_rates(size_class)) {
    if (const auto learned = rates(false)) return in_proportion(*learned);
  }
  const auto tried = size_class >= SplitChoice::kStriped ? rates(true) : std::nullopt;
  if (!tried) return std::nullopt;
  const double most = *std::max_element(tried->begin(), tried->end());
  double least = most;
  for (int lane = 0; lane < policy_.lanes(); ++lane) {
    if (!contains(policy_.sharing(), lane)) continue;
    least = std::min(least, (*tried)[static_cast<size_t>(lane)]);
  }
  if (kFarApart * least >= most || least < kLeastRate * most) return std::nullopt;
  return in_proportion(*tried);
}

// Whether what a division by rates took is not far beyond what the fastest lane would take alone if
// nothing but its rate did: else it is what several lanes cost that decides.
bool Exploration::are_rates_decisive(double bytes, double time) const {
  const auto rates = rates_ != nullptr ? this->rates(true) : std::nullopt;
  return rates &&
         kHopeless * bytes * kSecond > time * *std::max_element(rates->begin(), rates->end());
}

bool Exploration::teaches_rates(SizeClass size_class) const {
  return rates_ != nullptr && policy_.alone() != 0 && size_class >= kLong;
}

// Of the lanes that share messages; none if one is unknown.
std::optional<std::vector<double>> Exploration::rates(bool also_tried) const {
  std::vector<double> rates = rates_(also_tried);
  for (int lane = 0; lane < policy_.lanes(); ++lane) {
    double& rate = rates[static_cast<size_t>(lane)];
    if (!contains(policy_.sharing(), lane)) {
      rate = 0;
    } else if (rate <= 0) {
      return std::nullopt;
    }
  }
  return rates;
}

std::optional<Allocation> Exploration::unknown_alone(SizeClass size_class, LaneSet among) const {
  for (int lane = 0; lane < policy_.lanes(); ++lane) {
    const bool is_known = model_.knows(size_class, lane_bit(lane));
    if (contains(among, lane) && !is_known) return all_on(lane, policy_.lanes());
  }
  return std::nullopt;
}

// A lane that was not yet measured alone and may be the best so: one of those that are fast beside
// the others, unless one of them was not.
std::optional<int> Exploration::promising_alone(SizeClass size_class, double bytes) const {
  std::vector<std::pair<double, int>> beside;  // what lanes take for equal parts
  for (int lane = 0; lane < policy_.lanes(); ++lane) {
    if (!contains(policy_.sharing(), lane)) continue;
    const auto line = model_.line(size_class, policy_.sharing(), lane);
    if (!line) continue;
    beside.emplace_back(line->at(bytes / std::popcount(policy_.sharing())), lane);
  }
  std::sort(beside.begin(), beside.end());
  const auto found = choice_.best(size_class, bytes, policy_.live(), false);
  for (const auto& [time, lane] : beside) {
    if (time > kDominated * beside.front().first) break;
    if (!model_.knows(size_class, lane_bit(lane))) return lane;
    const double alone = model_.line(size_class, lane_bit(lane), lane)->at(bytes);
    if (found && alone > kHopeless * found->time) break;
  }
  return std::nullopt;
}

}  // namespace nezha
