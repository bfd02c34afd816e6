// SPDX-License-Identifier: Apache-2.0
#include "control/candidates.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

namespace nezha {
namespace {

// A single lane that is predicted to take this many times as long as the best way is not measured.
constexpr double kHopelessAlone = 1.5;
// A candidate that is predicted to take this many times as long as the home is never tried, so that
// no operation times out because of it.
constexpr double kFarSlower = 32;
// The part of a message that a lane is given on trial if the model would give it nothing.
constexpr double kLittle = 1. / 64;

}  // namespace

bool Candidates::suits(SizeClass size_class, LaneSet set) const {
  const bool is_whole = size_class >= whole_from_ && (lanes_.live() & lanes_.alone()) != 0;
  return std::has_single_bit(set) || !is_whole;
}

std::optional<Split> Candidates::best(SizeClass size_class, double bytes, LaneSet among) const {
  std::optional<Split> best;
  for (const LaneSet set : lanes_.usable_sets()) {
    if ((set & ~among) != 0 || !suits(size_class, set)) continue;
    auto split = model_.finish_together(size_class, bytes, set);
    if (split && (!best || split->time < best->time)) best = std::move(split);
  }
  return best;
}

// Stripes are measured first, because they need nothing to be known. Slices are next, and then
// single lanes. All are measured in each class, because messages of another length say little: a
// token bucket makes short ones seem fast, and short whole messages take the rails by turns.
std::optional<Allocation> Candidates::unmeasured(SizeClass size_class, double bytes) const {
  const LaneSet stripes = lanes_.live() & lanes_.alone();
  if (stripes != 0 && !model_.has_measured(size_class, stripes)) return lanes_.unlearned();
  const LaneSet sharing = lanes_.sharing();
  if (sharing == 0) return std::nullopt;
  if (suits(size_class, sharing) && !model_.has_measured(size_class, sharing)) {
    return first_division();
  }
  const auto found = best(size_class, bytes, lanes_.live());
  for (int lane = 0; lane < lanes_.lanes(); ++lane) {
    if (!contains(sharing, lane) || model_.has_measured(size_class, lane_bit(lane))) continue;
    if (found && alone(size_class, bytes, lane) > kHopelessAlone * found->time) continue;
    return all_on(lane, lanes_.lanes());
  }
  return std::nullopt;
}

std::optional<Split> Candidates::trial_of(SizeClass size_class, double bytes, LaneSet set,
                                          const Split& home) const {
  if (!suits(size_class, set)) return std::nullopt;
  // The candidate is another algorithm. The home's time says more about it than its times in other
  // classes do, or than the rate of a lane, which short messages do not show.
  if (set == home.set && !model_.has_measured(size_class, set)) return home;
  auto split = model_.finish_together(size_class, bytes, set);
  if (!split && std::has_single_bit(set)) {
    const int lane = std::countr_zero(set);
    const double time = alone(size_class, bytes, lane);
    split = Split{set, all_on(lane, lanes_.lanes()), time == 0 ? home.time : time};
  }
  const LaneSet added = set & ~home.set;
  if (!split && std::has_single_bit(added) && set == (home.set | added)) {
    RecycledVector<double> weights(home.allocation.begin(), home.allocation.end());
    const int lane = std::countr_zero(added);
    weights[static_cast<size_t>(lane)] = kLittle * SliceBounds::kWhole;
    const auto line = model_.line(size_class, set, lane);
    const double time = line ? line->at(kLittle * bytes) : 0;
    split = Split{set, in_proportion(weights), std::max(home.time, time)};
  }
  if (!split || split->time > kFarSlower * home.time) return std::nullopt;
  return split;
}

// Returns parts in proportion to the lanes' rates, or equal parts if a rate is unknown.
Allocation Candidates::first_division() const {
  RecycledVector<double> weights(static_cast<size_t>(lanes_.lanes()));
  for (int lane = 0; lane < lanes_.lanes(); ++lane) {
    if (!contains(lanes_.sharing(), lane)) continue;
    const auto rate = this->rate(lane);
    if (!rate) return equal_parts(lanes_.sharing(), lanes_.lanes());
    weights[static_cast<size_t>(lane)] = *rate;
  }
  return in_proportion(weights);
}

// Returns the lane's rate in bytes per second.
std::optional<double> Candidates::rate(int lane) const {
  if (rates_ == nullptr) return std::nullopt;
  const double rate = rates_(/*also_tried=*/true)[static_cast<size_t>(lane)];
  return rate > 0 ? std::optional(rate) : std::nullopt;
}

// Returns the time, in nanoseconds, that the whole message would take on a lane that was not
// measured alone. The lane's rate says more than its time beside other lanes, which may have
// hindered it; that time is used if the rate is unknown. Returns 0 if nothing is known.
double Candidates::alone(SizeClass size_class, double bytes, int lane) const {
  if (const auto rate = this->rate(lane)) return bytes / *rate * kSecond;
  const auto guess = model_.predict(size_class, bytes, all_on(lane, lanes_.lanes()));
  return guess ? guess->time : 0;
}

}  // namespace nezha
