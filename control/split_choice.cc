// SPDX-License-Identifier: Apache-2.0
#include "control/split_choice.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace nezha {
namespace {

// Lanes that stand alone adapt within an operation: between large messages' times that differ by
// less, they are chosen, and not left for what is better by less than a little more.
constexpr SizeClass kLarge = 22;
constexpr double kSteady = 0.015;
constexpr double kUnsteady = 0.025;
// A rail that carries nothing has saved up tokens that the one in use has not: short messages by it
// seem to take up to three tenths less than by one that is as fast.
constexpr double kSavedUp = 0.3;
// Nor do they for long take less than this part of what its rate says, which is not known well.
constexpr double kSustained = 0.8;
constexpr int kRefuted = 4;  // windows in a row that took less: the rate is wrong
constexpr double kMostProbePart = 1. / 16;
// What a lane carries grows by no more at once: what it took for little says little of much, when a
// bucket of tokens held the little.
constexpr double kMostGrowth = 4;

}  // namespace

SplitChoice::SplitChoice(const Policy& lanes, const LaneModel& model, LaneRates rates)
    : lanes_(lanes),
      model_(model),
      rates_(std::move(rates)),
      carried_(static_cast<size_t>(lanes.lanes())) {}

void SplitChoice::saw(const Window& window, const Allocation& allocation, bool is_probe) {
  Class& known = classes_[window.size_class];
  const LaneSet set = took_part(window) & lanes_of(allocation);
  const bool is_cut = set == lanes_of(allocation);
  if (!is_probe) {
    known.is_cut &= is_cut;
  } else if (!is_cut) {  // a probe's small part is too short where others may not be
    known.probe_part = std::min(kMostProbePart, 2 * known.probe_part);
  }
  saw_carried(window, restricted_to(set, allocation), is_probe);
  if (std::has_single_bit(set)) saw_alone(window, std::countr_zero(set), is_probe);
}

// A probe may live on what the lane has saved up; a long window by it does not. What was measured
// again and again is believed in the end, since bursts show rates once, and only long messages
// teach them.
void SplitChoice::saw_alone(const Window& window, int lane, bool is_probe) {
  if (window.size_class >= kShort) return;
  Class& known = classes_[window.size_class];
  const auto took = static_cast<double>(slowest(window));
  if (!is_probe) known.took[lane] = took;
  const auto rates = this->rates();
  const double rate = rates ? (*rates)[static_cast<size_t>(lane)] : 0;
  if (rate <= 0) return;
  const bool is_forbidden = took * rate < kSustained * static_cast<double>(window.bytes) * kSecond;
  const bool is_long = !is_probe && window.operations >= Timer::kOperations;
  int& forbidden = known.forbidden[lane];
  if (is_forbidden) {
    forbidden = is_long ? kRefuted : std::min(kRefuted, forbidden + (is_probe ? 1 : 0));
  } else if (is_long || is_probe) {
    forbidden = 0;
  }
}

// What a lane was late with it has not carried as fast as the others carried theirs.
void SplitChoice::saw_carried(const Window& window, const Allocation& ran_by, bool is_probe) {
  std::vector<double>& carries = classes_[window.size_class].carries;
  carries.resize(ran_by.size());
  for (size_t lane = 0; lane < ran_by.size(); ++lane) {
    double others = 0;
    for (size_t other = 0; other < ran_by.size(); ++other) {
      if (other != lane) others = std::max(others, static_cast<double>(window.lanes[other].mean));
    }
    const auto time = static_cast<double>(window.lanes[lane].mean);
    const double timely = others == 0 || time <= others ? 1 : others / time;
    const double part = part_of(static_cast<double>(window.bytes), ran_by[lane]);
    carried_[lane] = std::max(carried_[lane], timely * part);
    if (!is_probe) carries[lane] = part;
  }
}

bool SplitChoice::is_spread(SizeClass size_class) const {
  return size_class >= kShort && classes_.at(size_class).is_cut;
}

// Short messages over stripes take turns on the rails, and what a probe shows is what those have
// saved up, which does not last: trials show whether to (control/way_trial.h). Shorter ones go by
// the fastest rail, as over that one alone.
bool SplitChoice::suits(SizeClass size_class, LaneSet set) const {
  if (size_class < kStriped && lanes_.sharing() != 0 && (set & lanes_.alone()) != 0) return false;
  return is_spread(size_class) || std::has_single_bit(set);
}

std::optional<Split> SplitChoice::best(SizeClass size_class, double bytes, LaneSet among,
                                       bool only_measured) const {
  // Where all that is known is of far shorter messages, what finds its way by itself goes first.
  const bool stripes = (lanes_.live() & lanes_.alone()) != 0;
  const auto rates = size_class < kShort ? this->rates() : std::nullopt;
  std::optional<Split> best;
  const auto cost = [&](const Split& split) {
    return split.time * (is_steady(split.set, bytes) ? 1 - kSteady : 1);
  };
  for (const LaneSet set : lanes_.usable_sets()) {
    if ((set & ~among) != 0 || !suits(size_class, set)) continue;
    if (only_measured && !model_.has_measured(size_class, set)) continue;
    auto split = model_.finish_together(size_class, bytes, set);
    if (split && rates)
      split->time = std::max(split->time, least_time(size_class, set, bytes, *rates));
    if (split && stripes && !in_steps(size_class, bytes, split->allocation)) continue;
    if (split && (!best || cost(*split) < cost(*best))) best = split;
  }
  if (best)
    best->allocation = in_steps(size_class, bytes, best->allocation).value_or(best->allocation);
  return best;
}

bool SplitChoice::is_steady(LaneSet set, double bytes) const {
  return (set & lanes_.alone()) != 0 && size_class_of(static_cast<uint64_t>(bytes)) >= kLarge;
}

bool SplitChoice::is_better(bool is_settled, double bytes, const Split& candidate,
                            const Split& current, double by) const {
  const bool from = is_steady(current.set, bytes);
  const bool to = is_steady(candidate.set, bytes);
  if (from && !to) by = std::max(by, kUnsteady);
  if (to && !from) by = is_settled ? 0 : -kSteady;
  const bool is_other_rail = candidate.set != current.set && std::has_single_bit(candidate.set) &&
                             ((candidate.set | current.set) & lanes_.alone()) == 0;
  const SizeClass size_class = size_class_of(static_cast<uint64_t>(bytes));
  if (is_other_rail && size_class < kShort && is_settled &&
      !is_far_faster(size_class, candidate.set, current)) {
    by = std::max(by, kSavedUp);
  }
  return candidate.time < current.time * (1 - by);
}

// None if that of a lane that shares messages is unknown. Without stripes there are none to learn.
std::optional<std::vector<double>> SplitChoice::rates() const {
  if (!rates_ || lanes_.alone() == 0) return std::nullopt;
  std::vector<double> rates = rates_(/*also_tried=*/true);
  for (int lane = 0; lane < lanes_.lanes(); ++lane) {
    if (contains(lanes_.sharing(), lane) && rates[static_cast<size_t>(lane)] <= 0)
      return std::nullopt;
  }
  return rates;
}

// That a lane's rate allows; 0 where there is no such, or it was refuted.
double SplitChoice::least_time(SizeClass size_class, LaneSet set, double bytes,
                               const std::vector<double>& rates) const {
  if (!std::has_single_bit(set & lanes_.sharing())) return 0;
  const int lane = std::countr_zero(set);
  const auto& forbidden = classes_.at(size_class).forbidden;
  const auto found = forbidden.find(lane);
  if (found != forbidden.end() && found->second >= kRefuted) return 0;
  return kSustained * bytes * kSecond / rates[static_cast<size_t>(lane)];
}

// Unless operations took no less when they last went there: then its rate is not what it was.
bool SplitChoice::is_far_faster(SizeClass size_class, LaneSet set, const Split& current) const {
  const auto rates = this->rates();
  if (!rates) return false;
  const auto rate = [&](LaneSet it) { return (*rates)[static_cast<size_t>(std::countr_zero(it))]; };
  if (rate(set) <= kFarFaster * rate(current.set)) return false;
  const auto known = classes_.find(size_class);
  if (known == classes_.end()) return true;
  const auto took = known->second.took.find(std::countr_zero(set));
  return took == known->second.took.end() || took->second < current.time;
}

// What a lane may carry next, of so many bytes: a probe's small part in any case, and what it does
// now.
double SplitChoice::most(SizeClass size_class, int lane, double bytes) const {
  const double carried = carried_[static_cast<size_t>(lane)];
  if (carried == 0 || contains(lanes_.alone(), lane)) return bytes;
  const Class& known = classes_.at(size_class);
  const double now = known.carries.empty() ? 0 : known.carries[static_cast<size_t>(lane)];
  return std::max({kMostGrowth * carried, now, known.probe_part * bytes});
}

std::optional<Allocation> SplitChoice::in_steps(SizeClass size_class, double bytes,
                                                const Allocation& allocation) const {
  const LaneSet set = lanes_of(allocation);
  LaneSet held = 0;
  RecycledVector<double> parts(allocation.begin(), allocation.end());
  for (LaneSet before = ~held; before != held;) {
    before = held;
    double rest = bytes;
    double others = 0;  // the parts of those that are not held
    for (int lane = 0; lane < lanes_.lanes(); ++lane) {
      if (contains(held, lane)) {
        rest -= parts[static_cast<size_t>(lane)];
      } else {
        others += parts[static_cast<size_t>(lane)];
      }
    }
    for (int lane = 0; lane < lanes_.lanes(); ++lane) {
      if (!contains(set & ~held, lane)) continue;
      double& part = parts[static_cast<size_t>(lane)];
      part *= rest / others;
      if (part <= most(size_class, lane, bytes)) continue;
      part = most(size_class, lane, bytes);
      held |= lane_bit(lane);
    }
    if (held == set) return std::nullopt;
  }
  return in_proportion(parts);
}

}  // namespace nezha
