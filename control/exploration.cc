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
// Short messages wait for rails' rates for no longer, in nanoseconds of those operations that ranks
// tell of: of long runs that is an eighth.
constexpr double kAwaited = 300 * kMillisecond;

// A lane that takes so much longer than another beside it is not the faster one alone.
constexpr double kDominated = 1.25;
// When a lane alone takes so much longer than several, no lane alone is the best.
constexpr double kHopeless = 1.5;

// Of what the fastest one takes: more is not assumed of a lane, or no probe would go by it.
constexpr double kMostAssumed = 16;
constexpr double kAssumed = 0.3;  // the error of what is assumed

constexpr double kRefuted = 0.65;  // of what a rate says: less can't be what was saved up alone
constexpr double kByRate = 0.4;    // of what a lane takes: it is its rate that decides
// How far apart rates are where equal parts take far longer than a division that is off by half.
constexpr double kFarApart = 4;
constexpr double kLeastRate = 1. / 64;  // of the fastest lane's: less may be too short to be cut

}  // namespace

Allocation Exploration::first(SizeClass size_class) const {
  if (goes_by_rates(size_class) && !rates(true)) return policy_.unlearned();
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

// Short messages are measured for no longer than rails live on what they have saved up: that a slow
// one is slow, its rate says.
bool Exploration::goes_by_rates(SizeClass size_class) const {
  if (rates_ == nullptr || policy_.alone() == 0 || size_class >= SplitChoice::kShort) return false;
  const std::vector<double> rates = rates_(/*also_tried=*/true);
  for (int lane = 0; lane < policy_.lanes(); ++lane) {
    if (contains(policy_.sharing(), lane) && rates[static_cast<size_t>(lane)] == kNoRate)
      return false;
  }
  return true;
}

// First bursts take about as long as connecting does; meanwhile stripes find their way by those
// that have arrived.
bool Exploration::goes_on_waiting(const Window& window, LaneSet set) {
  if ((set & policy_.alone()) == 0 || !goes_by_rates(window.size_class)) return false;
  double& awaited = classes_.at(window.size_class).awaited;
  awaited += static_cast<double>(slowest(window)) * window.operations;
  return awaited < kAwaited && !rates(true);
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

// Unless the fastest lane was faster than its rate: some rate is wrong then.
void Exploration::assume_slow(const Window& window) {
  const auto rates = goes_by_rates(window.size_class) ? this->rates(true) : std::nullopt;
  if (!rates) return;
  const auto fastest = std::max_element(rates->begin(), rates->end());
  const auto best = static_cast<int>(fastest - rates->begin());
  const auto bytes = static_cast<double>(window.bytes);
  const auto there = model_.predict(window.size_class, bytes, all_on(best, policy_.lanes()));
  if (!there || !model_.has_measured(window.size_class, lane_bit(best))) return;
  if (there->time < kRefuted * bytes * kSecond / *fastest) return;
  for (int lane = 0; lane < policy_.lanes(); ++lane) {
    const double rate = (*rates)[static_cast<size_t>(lane)];
    if (!contains(policy_.sharing(), lane) ||
        model_.has_measured(window.size_class, lane_bit(lane))) {
      continue;
    }
    if (bytes * kSecond / rate < kDominated * there->time) continue;
    assume_alone(window, lane, std::min(kMostAssumed, *fastest / rate) * there->time);
    classes_.at(window.size_class).assumed |= lane_bit(lane);
  }
}

void Exploration::assume_alone(const Window& window, int lane, double time) {
  const auto index = static_cast<size_t>(lane);
  if (model_.has_measured(window.size_class, lane_bit(lane))) return;
  Window assumed = window;
  assumed.lanes.assign(window.lanes.size(), {});
  assumed.lanes[index] = {static_cast<Nanos>(time), static_cast<Nanos>(kAssumed * time)};
  model_.learn(assumed, all_on(lane, policy_.lanes()));
}

std::optional<int> Exploration::forget_assumed(const Window& window) {
  LaneSet& assumed = classes_.at(window.size_class).assumed;
  const auto rates = assumed != 0 ? this->rates(true) : std::nullopt;
  const double least = rates ? static_cast<double>(window.bytes) * kSecond : 0;
  for (int lane = 0; rates && lane < policy_.lanes(); ++lane) {
    if (!contains(assumed & policy_.sharing(), lane)) continue;
    const double rate = (*rates)[static_cast<size_t>(lane)];
    if (kDominated * least / rate >= static_cast<double>(slowest(window))) continue;
    assumed &= ~lane_bit(lane);
    model_.forget(window.size_class, lane_bit(lane));
    return lane;
  }
  return std::nullopt;
}

// The best lane seems to be one whose rate is what it takes, though others' are far higher: more
// likely something was in the way of those.
LaneSet Exploration::surprised_by(const Window& window, LaneSet set) const {
  if (!goes_by_rates(window.size_class) || !std::has_single_bit(set & policy_.sharing())) return 0;
  const auto rates = this->rates(true);
  if (!rates) return 0;
  const double rate = (*rates)[static_cast<size_t>(std::countr_zero(set))];
  const double at_least = static_cast<double>(window.bytes) * kSecond / rate;
  if (at_least < kByRate * static_cast<double>(slowest(window))) return 0;
  LaneSet faster = 0;
  for (int lane = 0; lane < policy_.lanes(); ++lane) {
    if ((*rates)[static_cast<size_t>(lane)] > SplitChoice::kFarFaster * rate)
      faster |= lane_bit(lane);
  }
  return faster;
}

// The fastest first, where rates are known.
std::optional<Allocation> Exploration::unknown_alone(SizeClass size_class, LaneSet among) const {
  const auto rates = goes_by_rates(size_class) ? this->rates(true) : std::nullopt;
  std::optional<int> first;
  const auto is_faster = [&](int lane) {
    return rates && (*rates)[static_cast<size_t>(lane)] > (*rates)[static_cast<size_t>(*first)];
  };
  for (int lane = 0; lane < policy_.lanes(); ++lane) {
    if (!contains(among, lane) || model_.knows(size_class, lane_bit(lane))) continue;
    if (!first || is_faster(lane)) first = lane;
  }
  return first ? std::optional(all_on(*first, policy_.lanes())) : std::nullopt;
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
