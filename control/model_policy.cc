#include "control/model_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace nezha {
namespace {

// Shorter messages are start-up for the most part: two TCP networks help from 8 KiB on.
constexpr SizeClass kShort = 13;
constexpr int kSearchOperations = 3;
constexpr int kBalanceOperations = 4;
// A search that has not ended by then takes the best that it has measured.
constexpr int kSearchWindows = 10;
// A lane that takes so much longer than another beside it is not the faster one alone.
constexpr double kDominated = 1.25;
// When a lane alone takes so much longer than several, no lane alone is the best.
constexpr double kHopeless = 1.5;
// A window that is off by more shows a change, not noise.
constexpr double kDrift = 0.10;
constexpr double kSurprise = 0.25;  // where a prediction is less sure
// Shorter messages gain little by stripes: a search leaves those to probes.
constexpr SizeClass kStriped = 16;
// Lanes that stand alone adapt within an operation: between large messages' times that differ by
// less, they are chosen, and not left for what is better by less than a little more.
constexpr SizeClass kLarge = 20;
constexpr double kSteady = 0.015;
constexpr double kUnsteady = 0.025;
// The step away from a probe is taken while operations go on by it: it costs about twice its
// window.
constexpr double kProbeCharge = 2;
constexpr double kMostProbePart = 1. / 16;
constexpr double kProbeSlowest = 32;  // times what the current allocation takes
// One that takes more times that much does not keep others waiting until it can be afforded.
constexpr double kDear = 4;

// By which part a prediction must be better to be acted on: what is worth a change, and beyond what
// noise brings about.
double worthwhile(double least, double errors, const Split& a, const Split& b) {
  return std::min(0.3, std::max(least, errors * std::max(a.error, b.error)));
}

bool is_settled(ClassState state) {
  return state == ClassState::kCold || state == ClassState::kConverged;
}

}  // namespace

Allocation ModelPolicy::open(SizeClass size_class) {
  classes_[size_class] = {};
  const auto predicted =
      best(size_class, static_cast<double>(typical_bytes(size_class)), live(), false);
  if (predicted) return predicted->allocation;
  return unexplored(size_class, static_cast<double>(typical_bytes(size_class)))
      .value_or(unlearned());
}

void ModelPolicy::resume(const Window& last, const Allocation& ran_by, ClassState state) {
  Class& known = classes_[last.size_class];
  known.state = state;
  known.is_first = false;
  known.is_cut = took_part(last) == lanes_of(ran_by);
  model_.learn(last, restricted_to(took_part(last), ran_by));
}

std::optional<Decision> ModelPolicy::on_window(const Window& window, const Allocation& allocation) {
  Class& known = classes_[window.size_class];
  const LaneSet set = took_part(window) & lanes_of(allocation);
  const bool is_cut = set == lanes_of(allocation);
  if (!known.home) {
    known.is_cut &= is_cut;
  } else if (!is_cut) {  // a probe's small part is too short where others may not be
    known.probe_part = std::min(kMostProbePart, 2 * known.probe_part);
  }
  const Allocation ran_by = restricted_to(set, allocation);
  account(window, known.home.has_value());
  if (known.home) return on_probe(known, window, ran_by);
  if (is_settled(known.state)) return on_settled(known, window, ran_by);
  return on_search(known, window, ran_by);
}

Allocation ModelPolicy::on_lanes(SizeClass size_class, const Allocation& /*current*/) {
  Class& known = classes_[size_class];
  open_search(known, true);
  known.is_explored = false;
  for (int lane = 0; lane < lanes(); ++lane) {
    if (!contains(alone(), lane)) continue;  // those go over other rails now
    model_.forget(size_class, lane_bit(lane));
    model_.lane_changed(size_class, lane, 1);
  }
  const auto split =
      best(size_class, static_cast<double>(typical_bytes(size_class)), live(), false);
  return split ? split->allocation : unlearned();
}

ClassState ModelPolicy::state(SizeClass size_class) const {
  const auto known = classes_.find(size_class);
  return known == classes_.end() ? ClassState::kSearching : known->second.state;
}

int ModelPolicy::window_operations(SizeClass size_class) const {
  const auto known = classes_.find(size_class);
  if (known == classes_.end() || known->second.home) return kSearchOperations;
  if (is_settled(known->second.state)) return Timer::kOperations;
  return known->second.state == ClassState::kHot ? kBalanceOperations : kSearchOperations;
}

std::optional<Decision> ModelPolicy::on_search(Class& known, const Window& window,
                                               const Allocation& ran_by) {
  learn_in_search(known, window, ran_by);
  const SizeClass size_class = window.size_class;
  const auto bytes = static_cast<double>(window.bytes);
  const LaneSet set = lanes_of(ran_by);
  const bool is_over = ++known.searched >= kSearchWindows;
  if (!known.is_explored && !is_over) {
    if (const auto next = unexplored(size_class, bytes)) return Decision{*next, Cause::kSearch};
  }
  known.is_explored = true;
  const auto current = model_.predict(size_class, bytes, ran_by);
  const auto found = best(size_class, bytes, live(), is_over);
  if (!found ||
      !is_better(known, bytes, *found, *current, worthwhile(0.015, 2, *found, *current))) {
    settle(known, set);
    return std::nullopt;
  }
  const Decision decision = go_to(known, *found, set, cause_of(known, found->set == set));
  if (is_over) settle(known, found->set);
  return decision;
}

void ModelPolicy::learn_in_search(Class& known, const Window& window, const Allocation& ran_by) {
  const LaneSet set = lanes_of(ran_by);
  const auto predicted =
      model_.predict(window.size_class, static_cast<double>(window.bytes), ran_by);
  const auto took = static_cast<double>(slowest(window));
  if (known.is_first && predicted && std::fabs(took / predicted->time - 1) > kSurprise) {
    model_.set_borrows(window.size_class, false);  // this class is not like its neighbours
  }
  known.is_first = false;
  if (known.after_drift && known.searched == 0) {
    Changes changed = changes(window, ran_by, set);
    const Changes others = implied(window.size_class, changed);
    changed.insert(changed.end(), others.begin(), others.end());
    return learn_changes(window, ran_by, changed);
  }
  // One that says something else altogether than the last was no good, or the last was not.
  const bool is_surprise = model_.has_measured(window.size_class, set) &&
                           std::fabs(took / predicted->time - 1) > kSurprise;
  if (is_surprise) model_.forget(window.size_class, set);
  model_.learn(window, ran_by);
}

std::optional<Decision> ModelPolicy::on_settled(Class& known, const Window& window,
                                                const Allocation& ran_by) {
  const auto bytes = static_cast<double>(window.bytes);
  const LaneSet set = lanes_of(ran_by);
  if (!changes(window, ran_by, set).empty()) {
    // In part from before the change, or a chance: it teaches nothing.
    open_search(known, true);
    return std::nullopt;
  }
  model_.learn(window, ran_by);
  const auto current = model_.predict(window.size_class, bytes, ran_by);
  const auto found = best(window.size_class, bytes, live(), false);
  if (found && is_better(known, bytes, *found, *current, worthwhile(0.02, 3, *found, *current))) {
    return go_to(known, *found, set, Cause::kRebalance);
  }
  const auto probe = next_probe(window, ran_by);
  if (!probe) return std::nullopt;
  known.home = ran_by;
  return Decision{*probe, Cause::kProbe};
}

std::optional<Decision> ModelPolicy::on_probe(Class& known, const Window& window,
                                              const Allocation& ran_by) {
  const auto bytes = static_cast<double>(window.bytes);
  const Allocation home = *known.home;
  known.home.reset();
  const LaneSet unused = lanes_of(ran_by) & ~lanes_of(home);
  learn_changes(window, ran_by, changes(window, ran_by, unused));
  const auto current = model_.predict(window.size_class, bytes, home);
  const auto found = best(window.size_class, bytes, live(), false);
  if (current && found &&
      is_better(known, bytes, *found, *current, worthwhile(0.02, 3, *found, *current))) {
    open_search(known, false);
    return go_to(known, *found, lanes_of(home), Cause::kSearch);
  }
  return Decision{home, Cause::kReturn};
}

void ModelPolicy::open_search(Class& known, bool after_drift) {
  known.searched = 0;
  known.after_drift = after_drift;
  known.is_cut = true;
  known.home.reset();
  known.state = ClassState::kSearching;
}

Decision ModelPolicy::go_to(Class& known, const Split& split, LaneSet from, Cause cause) {
  const bool is_balancing = split.set == from && std::popcount(split.set) > 1;
  if (is_settled(known.state)) open_search(known, false);
  known.state = is_balancing ? ClassState::kHot : ClassState::kSearching;
  return {split.allocation, cause};
}

void ModelPolicy::settle(Class& known, LaneSet set) {
  known.state = std::popcount(set) == 1 ? ClassState::kCold : ClassState::kConverged;
}

Cause ModelPolicy::cause_of(const Class& known, bool is_same_set) {
  if (known.after_drift && known.searched == 1) return Cause::kDrift;
  return is_same_set ? Cause::kRebalance : Cause::kSearch;
}

ModelPolicy::Changes ModelPolicy::changes(const Window& window, const Allocation& ran_by,
                                          LaneSet suspects) const {
  Changes changes;
  for (int lane = 0; lane < lanes(); ++lane) {
    const auto index = static_cast<size_t>(lane);
    if (!contains(suspects, lane) || window.lanes[index].mean == 0) continue;
    const auto line = model_.line(window.size_class, lanes_of(ran_by), lane);
    if (!line) continue;
    const auto time = static_cast<double>(window.lanes[index].mean);
    const auto error = static_cast<double>(window.lanes[index].error) / time;
    const double ratio = time / line->at(part_of(static_cast<double>(window.bytes), ran_by[index]));
    const double least = std::max(kDrift, 4 * std::hypot(error, line->error));
    if (std::fabs(ratio - 1) > least) changes.emplace_back(lane, ratio);
  }
  return changes;
}

// After a change, what was measured before in the set no longer counts.
void ModelPolicy::learn_changes(const Window& window, const Allocation& ran_by,
                                const Changes& changes) {
  if (!changes.empty()) model_.forget(window.size_class, lanes_of(ran_by));
  for (const auto& [lane, ratio] : changes) model_.lane_changed(window.size_class, lane, ratio);
  model_.learn(window, ran_by);
}

// Stripes go over the same rails as slices. When rails change, stripes take as much longer as all
// rails together do; when stripes change, who knows which rail has: all did, until they are
// measured.
ModelPolicy::Changes ModelPolicy::implied(SizeClass size_class, const Changes& changes) const {
  Changes others;
  if (changes.empty()) return others;
  const bool are_stripes = contains(alone(), changes.front().first);
  const double ratio = are_stripes ? changes.front().second : change_together(size_class, changes);
  const LaneSet affected = are_stripes ? sharing() : live() & alone();
  for (int lane = 0; lane < lanes(); ++lane) {
    if (contains(affected, lane)) others.emplace_back(lane, ratio);
  }
  return others;
}

// How many times as long a byte takes that all rails carry together.
double ModelPolicy::change_together(SizeClass size_class, const Changes& changes) const {
  double before = 0;  // bytes a nanosecond
  double after = 0;
  for (int lane = 0; lane < lanes(); ++lane) {
    const auto line =
        contains(sharing(), lane) ? model_.line(size_class, sharing(), lane) : std::nullopt;
    if (!line) continue;
    const auto change = std::find_if(changes.begin(), changes.end(),
                                     [lane](const auto& it) { return it.first == lane; });
    before += 1 / line->slope;
    after += 1 / line->slope / (change == changes.end() ? 1 : change->second);
  }
  return after == 0 ? 1 : before / after;
}

// What must be measured before sets can be compared.
std::optional<Allocation> ModelPolicy::unexplored(SizeClass size_class, double bytes) const {
  if (sharing() == 0) return unknown_alone(size_class, live());
  if (!is_spread(size_class)) return unknown_alone(size_class, sharing());
  if (size_class >= kStriped) {
    if (auto striped = unknown_alone(size_class, live() & alone())) return striped;
  }
  const Allocation equal = equal_parts(sharing(), lanes());
  if (!model_.predict(size_class, bytes, equal)) return equal;
  const auto lane = promising_alone(size_class, bytes);
  if (!lane) return std::nullopt;
  return all_on(*lane, lanes());
}

std::optional<Allocation> ModelPolicy::unknown_alone(SizeClass size_class, LaneSet among) const {
  for (int lane = 0; lane < lanes(); ++lane) {
    const bool is_unknown = contains(among, lane) && !model_.knows(size_class, lane_bit(lane));
    if (is_unknown) return all_on(lane, lanes());
  }
  return std::nullopt;
}

// A lane that was not yet measured alone and may be the best so: one of those that are fast beside
// the others, unless one of them was not.
std::optional<int> ModelPolicy::promising_alone(SizeClass size_class, double bytes) const {
  std::vector<std::pair<double, int>> beside;  // what lanes take for equal parts
  for (int lane = 0; lane < lanes(); ++lane) {
    if (!contains(sharing(), lane)) continue;
    const Line line = *model_.line(size_class, sharing(), lane);
    beside.emplace_back(line.at(bytes / std::popcount(sharing())), lane);
  }
  std::sort(beside.begin(), beside.end());
  const auto found = best(size_class, bytes, live(), false);
  for (const auto& [time, lane] : beside) {
    if (time > kDominated * beside.front().first) break;
    if (!model_.knows(size_class, lane_bit(lane))) return lane;
    const double alone = model_.line(size_class, lane_bit(lane), lane)->at(bytes);
    if (found && alone > kHopeless * found->time) break;
  }
  return std::nullopt;
}

bool ModelPolicy::is_steady(LaneSet set, double bytes) const {
  return (set & alone()) != 0 && size_class_of(static_cast<uint64_t>(bytes)) >= kLarge;
}

bool ModelPolicy::is_better(const Class& known, double bytes, const Split& candidate,
                            const Split& current, double by) const {
  const bool from = is_steady(current.set, bytes);
  const bool to = is_steady(candidate.set, bytes);
  if (from && !to) by = std::max(by, kUnsteady);
  if (to && !from) by = is_settled(known.state) ? 0 : -kSteady;
  return candidate.time < current.time * (1 - by);
}

// Whether messages of the class may go over several lanes.
bool ModelPolicy::is_spread(SizeClass size_class) const {
  return size_class >= kShort && classes_.at(size_class).is_cut;
}

std::optional<Split> ModelPolicy::best(SizeClass size_class, double bytes, LaneSet among,
                                       bool only_measured) const {
  const bool is_spread = this->is_spread(size_class);
  std::optional<Split> best;
  const auto cost = [&](const Split& split) {
    return split.time * (is_steady(split.set, bytes) ? 1 - kSteady : 1);
  };
  for (const LaneSet set : usable_sets()) {
    if ((set & ~among) != 0 || (!is_spread && std::popcount(set) > 1)) continue;
    if (only_measured && !model_.has_measured(size_class, set)) continue;
    const auto split = model_.finish_together(size_class, bytes, set);
    if (split && (!best || cost(*split) < cost(*best))) best = split;
  }
  return best;
}

// Of the sets that differ from the current one by a lane, the lanes alone, and beside a lane that
// stands alone the best of the others, the one measured the longest time ago, once it can be
// afforded.
std::optional<Allocation> ModelPolicy::next_probe(const Window& window,
                                                  const Allocation& current) const {
  const auto bytes = static_cast<double>(window.bytes);
  const LaneSet set = lanes_of(current);
  const auto now = model_.predict(window.size_class, bytes, current);
  const auto beside =
      (set & alone()) == 0 ? std::nullopt : best(window.size_class, bytes, sharing(), false);
  const bool is_spread = this->is_spread(window.size_class);
  std::optional<Split> next;
  for (const LaneSet other : usable_sets()) {
    const bool is_near = std::popcount(other ^ set) == 1 || std::has_single_bit(other) ||
                         (beside && other == beside->set);
    if (!is_near || other == set || (!is_spread && std::popcount(other) > 1)) continue;
    const auto probe = probe_of(window, *now, other);
    if (!probe || (probe->time > kDear * now->time && !is_affordable(*probe))) continue;
    if (!next || model_.last_measured(window.size_class, other) <
                     model_.last_measured(window.size_class, next->set)) {
      next = probe;
    }
  }
  if (!next || !is_affordable(*next)) return std::nullopt;
  return next->allocation;
}

bool ModelPolicy::is_affordable(const Split& probe) const {
  const double cost = kProbeCharge * kSearchOperations * probe.time;
  // Twice, since a probe may take longer than was thought.
  return probe_time_ + 2 * cost <= kProbing * total_time_;
}

std::optional<Split> ModelPolicy::probe_of(const Window& window, const Split& current,
                                           LaneSet set) const {
  const auto bytes = static_cast<double>(window.bytes);
  const auto split = model_.finish_together(window.size_class, bytes, set);
  if (split) {
    return split->time <= kProbeSlowest * current.time ? split : std::nullopt;
  }
  if ((set & alone()) != 0) {
    return Split{set, all_on(std::countr_zero(set), lanes()), 2 * current.time};
  }
  const LaneSet added = set & ~current.set;
  if (added == set || added == 0) return std::nullopt;
  const int lane = std::countr_zero(added);
  std::vector<double> weights(current.allocation.begin(), current.allocation.end());
  const double part = classes_.at(window.size_class).probe_part;
  weights[static_cast<size_t>(lane)] = part * SliceBounds::kWhole;
  const auto line = model_.line(window.size_class, set, lane);
  const double time = line ? line->at(part * bytes) : 2 * current.time;
  return Split{set, in_proportion(weights), std::max(time, current.time)};
}

void ModelPolicy::account(const Window& window, bool is_probe) {
  const double time = static_cast<double>(slowest(window)) * window.operations;
  total_time_ += time;
  if (is_probe) probe_time_ += kProbeCharge * time;
}

}  // namespace nezha
