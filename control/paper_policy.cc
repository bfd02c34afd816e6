// SPDX-License-Identifier: Apache-2.0
#include "control/paper_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>

namespace nezha {
namespace {

constexpr double kDrift = 0.10;
constexpr uint32_t kStep = SliceBounds::kWhole / 100;

// Returns the allocation that follows by Eq. 2.
Allocation by_latency(const Window& window, const Allocation& ran_by) {
  std::vector<double> weights;
  for (size_t lane = 0; lane < ran_by.size(); ++lane) {
    weights.push_back(ran_by[lane] == 0 ? 0
                                        : static_cast<double>(ran_by[lane]) /
                                              static_cast<double>(window.lanes[lane].mean));
  }
  return in_proportion(weights);
}

// Moves 1% from the slowest lane to the fastest.
Allocation step(const Window& window, const Allocation& ran_by) {
  size_t slowest = ran_by.size();
  size_t fastest = ran_by.size();
  for (size_t lane = 0; lane < ran_by.size(); ++lane) {
    if (ran_by[lane] == 0) continue;
    const Nanos time = window.lanes[lane].mean;
    if (slowest == ran_by.size() || time > window.lanes[slowest].mean) slowest = lane;
    if (fastest == ran_by.size() || time < window.lanes[fastest].mean) fastest = lane;
  }
  Allocation next = ran_by;
  const uint32_t moved = std::min(kStep, next[slowest]);
  next[slowest] -= moved;
  next[fastest] += moved;
  return next;
}

// Returns whether some lane took another time than in the earlier window. Either start-up or bytes
// may decide what a lane takes, so both its time and its time per byte must differ.
bool has_drifted(const Window& window, const Window& earlier) {
  const double growth = static_cast<double>(window.bytes) / static_cast<double>(earlier.bytes);
  for (size_t lane = 0; lane < window.lanes.size(); ++lane) {
    if (earlier.lanes[lane].mean == 0) continue;
    const double ratio = static_cast<double>(window.lanes[lane].mean) /
                         static_cast<double>(earlier.lanes[lane].mean);
    if (std::min(std::fabs(ratio - 1), std::fabs(ratio / growth - 1)) > kDrift) return true;
  }
  return false;
}

bool is_hot(ClassState state) {
  return state == ClassState::kHot || state == ClassState::kConverged;
}

}  // namespace

Allocation PaperPolicy::open(SizeClass size_class) {
  bool below_cold = false;
  bool above_hot = false;
  for (const auto& [other, known] : classes_) {
    below_cold |= other > size_class && known.state == ClassState::kCold;
    above_hot |= other < size_class && is_hot(known.state);
  }
  Class& known = classes_[size_class];
  if (above_hot) return start_hot(known, equal_parts(live(), lanes()));
  return start_search(known, below_cold);
}

void PaperPolicy::resume(const Window& last, const Way& ran_by, ClassState state) {
  Class& known = classes_[last.size_class];
  known = {};
  known.state = state;
  if (state == ClassState::kSearching) {
    Allocation first = start_search(known, false);
    known.untried.push_back(std::move(first));
  } else if (state != ClassState::kHot) {
    known.best.allocation = ran_by.allocation;
    known.settled = last;
  }
}

std::optional<Decision> PaperPolicy::on_window(const Window& window, const Allocation& allocation) {
  Class& known = classes_[window.size_class];
  const Allocation ran_by = restricted_to(took_part(window) & lanes_of(allocation), allocation);
  if (known.state == ClassState::kCold || known.state == ClassState::kConverged) {
    return on_settled(known, window, ran_by);
  }
  const double cost = static_cast<double>(slowest(window)) / static_cast<double>(window.bytes);
  const bool is_first = known.best.allocation.empty();
  const bool is_best = is_first || cost < known.best.cost;
  if (is_best) known.best = {ran_by, cost};
  return known.state == ClassState::kSearching ? on_search(known, ran_by)
                                               : on_hot(known, window, ran_by, is_first, is_best);
}

Allocation PaperPolicy::on_lanes(SizeClass size_class, const Allocation& current) {
  Class& known = classes_[size_class];
  const LaneSet kept = lanes_of(current) & live();
  const bool goes_on = is_hot(known.state) && kept == live() && std::popcount(kept) > 1;
  return goes_on ? start_hot(known, restricted_to(kept, current)) : start_search(known, false);
}

// The next allocation of a search, or the next step, waits.
std::optional<Allocation> PaperPolicy::on_silence(SizeClass size_class) {
  const Class& known = classes_.at(size_class);
  if (is_settled(known.state) || known.best.allocation.empty()) return std::nullopt;
  return known.best.allocation;
}

ClassState PaperPolicy::state(SizeClass size_class) const {
  const auto known = classes_.find(size_class);
  return known == classes_.end() ? ClassState::kSearching : known->second.state;
}

Allocation PaperPolicy::start_search(Class& known, bool only_alone) const {
  known = {};
  for (int lane = 0; lane < lanes(); ++lane) {
    if (!contains(live(), lane)) continue;
    known.untried.push_back(all_on(lane, lanes()));
    if (only_alone || std::popcount(live()) == 1) continue;
    std::vector<double> weights(static_cast<size_t>(lanes()));
    for (int other = 0; other < lanes(); ++other) {
      if (contains(live(), other)) weights[static_cast<size_t>(other)] = 1;
    }
    weights[static_cast<size_t>(lane)] = 3 * (std::popcount(live()) - 1);
    known.untried.push_back(in_proportion(weights));
  }
  if (!only_alone) known.untried.push_back(equal_parts(live(), lanes()));
  Allocation first = std::move(known.untried.back());
  known.untried.pop_back();
  return first;
}

Allocation PaperPolicy::start_hot(Class& known, Allocation first) const {
  known = {};
  known.state = ClassState::kHot;
  return first;
}

std::optional<Decision> PaperPolicy::on_search(Class& known, const Allocation& ran_by) {
  if (!known.untried.empty()) {
    Decision next{std::move(known.untried.back()), Cause::kSearch,
                  "one allocation after the other is measured"};
    known.untried.pop_back();
    return next;
  }
  const Allocation best = known.best.allocation;
  if (std::popcount(lanes_of(best)) > 1) {
    return Decision{start_hot(known, equal_parts(live(), lanes())), Cause::kRebalance,
                    "several rails are the fastest, and are balanced from equal parts on"};
  }
  known.state = ClassState::kCold;
  if (best == ran_by) return std::nullopt;
  return Decision{best, Cause::kReturn, "one rail is the fastest"};
}

std::optional<Decision> PaperPolicy::on_hot(Class& known, const Window& window,
                                            const Allocation& ran_by, bool is_first, bool is_best) {
  if (is_first) {
    return Decision{by_latency(window, ran_by), Cause::kRebalance,
                    "shares follow what each rail took"};
  }
  if (is_best) {
    return Decision{step(window, ran_by), Cause::kRebalance,
                    "1% goes from the slowest rail to the fastest"};
  }
  const bool is_one = std::popcount(lanes_of(known.best.allocation)) == 1;
  known.state = is_one ? ClassState::kCold : ClassState::kConverged;
  return Decision{known.best.allocation, Cause::kReturn, "the last step has made nothing faster"};
}

std::optional<Decision> PaperPolicy::on_settled(Class& known, const Window& window,
                                                const Allocation& ran_by) {
  // A window of an earlier run may be of another allocation.
  if (!known.settled || took_part(*known.settled) != took_part(window)) known.settled = window;
  // One differing window may be chance, and part of it may be from before a change.
  const bool was_off = std::exchange(known.is_off, has_drifted(window, *known.settled));
  if (!was_off || !known.is_off) return std::nullopt;
  if (known.state == ClassState::kCold) return Decision{start_search(known, false), Cause::kDrift};
  start_hot(known, {});
  known.best = {ran_by, static_cast<double>(slowest(window)) / static_cast<double>(window.bytes)};
  return Decision{by_latency(window, ran_by), Cause::kDrift};
}

}  // namespace nezha
