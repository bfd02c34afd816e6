// SPDX-License-Identifier: Apache-2.0
#include "control/probes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace nezha {
namespace {

constexpr int kOperations = 3;  // of a probe's window
constexpr double kRest = 10;    // windows between two probes of a set
// Of short messages twice as many after each: what a change brings with it, to leave the rail and
// to tell of operations, takes a good part of them longer.
constexpr int kMostConfirmed = 4;
constexpr double kProbeSlowest = 32;  // times what operations take now: none is to time out
// Lanes together that took longer than one alone are measured once more if the rates that they have
// alone promise so much less.
constexpr double kPromising = 0.75;
constexpr int kDoubted = 64;  // windows; a quarter for the second time, a sixteenth at first

}  // namespace

void Probes::resume(SizeClass size_class) {
  Class& known = classes_[size_class];
  Class resumed;
  resumed.doubts = known.doubts;
  known = std::move(resumed);
}

void Probes::search_opens(SizeClass size_class) {
  Class& known = classes_[size_class];
  known.settled = 0;
  known.confirmed.clear();
}

void Probes::settled(SizeClass size_class) {
  Class& known = classes_[size_class];
  known.settled = std::min(known.settled + 1, kLongAgo);
}

void Probes::ended(SizeClass size_class, LaneSet set, bool is_as_known) {
  if (size_class >= SplitChoice::kStriped) return;
  int& confirmed = classes_[size_class].confirmed[set];
  confirmed = is_as_known ? std::min(confirmed + 1, kMostConfirmed) : 0;
}

std::optional<Probes::Probe> Probes::next(const Window& window, const Allocation& current) {
  Class& known = classes_[window.size_class];
  if (const auto doubt = doubtful(known, window)) return Probe{*doubt, true};
  if (const auto probe = cheapest(known, window, current)) return Probe{*probe};
  return std::nullopt;
}

bool Probes::is_in_doubt(const Class& known) {
  return known.doubts > 0 && known.settled >= kDoubted >> (2 * known.doubts);
}

// The first operations of ranks that have just started take longer than any later ones, and it is
// by those that lanes were measured. So that is done again somewhat later, and once more; it is no
// matter of what probes may cost, as those wait long after such a reading.
std::optional<Allocation> Probes::doubtful(Class& known, const Window& window) {
  const SizeClass size_class = window.size_class;
  const bool were_together = model_.has_measured(size_class, lanes_.sharing());
  if (!is_in_doubt(known) || !were_together || !choice_.is_spread(size_class)) return std::nullopt;
  const auto bytes = static_cast<double>(window.bytes);
  const auto found = choice_.best(size_class, bytes, lanes_.live(), false);
  const auto promised = model_.unhindered(size_class, bytes, lanes_.sharing());
  const bool is_alone = found && std::has_single_bit(found->set & lanes_.sharing());
  if (!is_alone || !promised || promised->time > kPromising * found->time) return std::nullopt;
  --known.doubts;
  model_.forget(size_class, lanes_.sharing());
  return promised->allocation;
}

// Of the sets that differ from the current one by a lane, the lanes alone, and beside a lane that
// stands alone the best of the others: what costs the least for the time that it was not measured.
std::optional<Allocation> Probes::cheapest(const Class& known, const Window& window,
                                           const Allocation& current) const {
  const auto bytes = static_cast<double>(window.bytes);
  const LaneSet set = lanes_of(current);
  const auto now = model_.predict(window.size_class, bytes, current);
  const auto beside = (set & lanes_.alone()) == 0
                          ? std::nullopt
                          : choice_.best(window.size_class, bytes, lanes_.sharing(), false);
  std::optional<Allocation> next;
  double least = 0;
  for (const LaneSet other : lanes_.usable_sets()) {
    const bool is_near = std::popcount(other ^ set) == 1 || std::has_single_bit(other) ||
                         (beside && other == beside->set);
    if (!is_near || other == set || !choice_.suits(window.size_class, other)) continue;
    const auto age = static_cast<double>(model_.age(window.size_class, other));
    const auto probe = probe_of(window, *now, other);
    const auto times = known.confirmed.find(other);
    const double rest = std::ldexp(kRest, times == known.confirmed.end() ? 0 : times->second);
    if (!probe || age < rest || probe->time > kProbeSlowest * now->time) continue;
    const double cost = ProbeBudget::cost(now->time, probe->time, kOperations);
    if (!budget_.affords(cost) || (next && cost / age >= least)) continue;
    next = probe->allocation;
    least = cost / age;
  }
  return next;
}

std::optional<Split> Probes::probe_of(const Window& window, const Split& current,
                                      LaneSet set) const {
  const auto bytes = static_cast<double>(window.bytes);
  auto split = model_.finish_together(window.size_class, bytes, set);
  if (split) {
    const auto stepped = choice_.in_steps(window.size_class, bytes, split->allocation);
    return model_.predict(window.size_class, bytes, stepped.value_or(split->allocation));
  }
  if ((set & lanes_.alone()) != 0) {
    return Split{set, all_on(std::countr_zero(set), lanes_.lanes()), 2 * current.time};
  }
  const LaneSet added = set & ~current.set;
  if (added == set || added == 0) return std::nullopt;
  const int lane = std::countr_zero(added);
  std::vector<double> weights(current.allocation.begin(), current.allocation.end());
  const double part = choice_.probe_part(window.size_class);
  weights[static_cast<size_t>(lane)] = part * SliceBounds::kWhole;
  const auto line = model_.line(window.size_class, set, lane);
  const double time = line ? line->at(part * bytes) : 2 * current.time;
  return Split{set, in_proportion(weights), std::max(time, current.time)};
}

}  // namespace nezha
