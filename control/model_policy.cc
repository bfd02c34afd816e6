// SPDX-License-Identifier: Apache-2.0
#include "control/model_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace nezha {
namespace {

// Why, for people.
constexpr absl::string_view kPredicted =
    "by what was measured of the rails this is predicted to be faster";

constexpr int kSearchOperations = 3;
constexpr int kBalanceOperations = 4;
// Windows of a search in which early lanes are believed.
constexpr int kNaive = 6;
// A search that has not ended by then takes the best that it has measured.
constexpr int kSearchWindows = 10;
constexpr double kSurprise = 0.25;  // where a prediction is less sure
// Times what it takes by what another policy knows, or of it: that was of another time.
constexpr double kAnotherTime = 4;
// Windows in which long messages over stripes teach at what rates rails go on.
constexpr int kLearnsRates = 4;
// Where a lane takes less of the time of the last one, the rates were wrong. What a lane has saved
// up makes less of a difference where they are right.
constexpr double kTogether = 0.85;
// A probe of a set that seems so much better, though not beyond doubt, lasts for some more windows:
// what is so in each of them is believed, but for short messages, which take less for longer where
// a rail has saved something up.
constexpr double kLooksBetter = 0.975;
constexpr int kLooks = 4;
constexpr SizeClass kNotFlattered = 17;
// Windows in which early lanes are let be, after a trial that was not worth it and did not end
// gently, as after moves within a set that were not.
constexpr int kLeastPatience = 4;
constexpr int kMostPatience = 16;
// Unless they are so much earlier than when the last trial began.
constexpr double kFarEarlier = 0.65;
// A lane's rates that differ by no more are the same one.
constexpr double kSameRate = 1.25;
// Of what a byte took: what a lane has saved up makes less of a difference if it gets far more.
constexpr double kFaster = 0.75;
// A move within a set is taken back unless operations gain that part of what was promised.
constexpr double kGained = 1. / 3;

// By which part a prediction must be better to be acted on: what is worth a change, and beyond what
// noise brings about.
double worthwhile(double least, double errors, const Split& a, const Split& b) {
  return std::min(0.3, std::max(least, errors * std::max(a.error, b.error)));
}
double worth_trying(const Split& a, const Split& b) {
  return worthwhile(0.015, a.set == b.set ? 0 : 1, a, b);
}
double worth_moving(const Split& a, const Split& b) {
  return a.set == b.set ? std::min(0.1, worthwhile(0.02, 1.5, a, b)) : worthwhile(0.02, 3, a, b);
}
// Within a set less is enough: a move that does not show is taken back.
double worth_balancing(const Split& a, const Split& b) {
  return a.set == b.set ? std::min(0.1, worthwhile(0.02, 1, a, b)) : worth_moving(a, b);
}

// Whether lanes finish as near to each other as what they have saved up allows.
bool are_together(const Window& window) {
  const auto last = static_cast<double>(slowest(window));
  for (size_t lane = 0; lane < window.lanes.size(); ++lane) {
    if (!contains(took_part(window), static_cast<int>(lane))) continue;
    if (static_cast<double>(window.lanes[lane].mean) < kTogether * last) return false;
  }
  return true;
}

}  // namespace

Allocation ModelPolicy::open(SizeClass size_class) {
  classes_[size_class] = {};
  choice_.open(size_class);
  probes_.open(size_class);
  const auto predicted =
      choice_.best(size_class, static_cast<double>(typical_bytes(size_class)), live(), false);
  if (predicted) return predicted->allocation;
  return exploration_.first(size_class);
}

void ModelPolicy::resume(const Window& last, const Allocation& ran_by, ClassState state) {
  Class& known = classes_[last.size_class] = {};
  choice_.open(last.size_class);
  choice_.saw(last, ran_by, false);
  probes_.resume(last.size_class);
  known.state = state;
  known.is_first = false;
  model_.learn(last, restricted_to(took_part(last), ran_by));
}

void ModelPolicy::assume(const Window& last, const Allocation& ran_by, const LaneModel& other) {
  const auto there = other.predict(last.size_class, static_cast<double>(last.bytes),
                                   restricted_to(took_part(last), ran_by));
  if (!there) return;
  const double ratio = static_cast<double>(slowest(last)) / there->time;
  if (std::max(ratio, 1 / ratio) <= kAnotherTime) model_.assume(last.size_class, other, ratio);
}

std::optional<Decision> ModelPolicy::on_window(const Window& window, const Allocation& allocation) {
  Class& known = classes_[window.size_class];
  const LaneSet set = took_part(window) & lanes_of(allocation);
  const Allocation ran_by = restricted_to(set, allocation);
  choice_.saw(window, allocation, known.probe.has_value());
  probes_.ran(window);
  if (known.probe) return on_probe(known, window, ran_by);
  if (known.trial) return on_trial(known, window, ran_by);
  if (is_settled(known.state)) return on_settled(known, window, ran_by);
  return on_search(known, window, ran_by);
}

Allocation ModelPolicy::on_lanes(SizeClass size_class, const Allocation& /*current*/) {
  Class& known = classes_[size_class];
  // What was measured before it had settled was of ranks that had just started.
  open_search(size_class, known, is_settled(known.state));
  known.is_explored = false;
  known.wait = 0;
  known.patience = 0;
  known.before.clear();
  for (int lane = 0; lane < lanes(); ++lane) {
    if (!contains(alone(), lane)) continue;  // those go over other rails now
    model_.forget(size_class, lane_bit(lane));
    model_.lane_changed(size_class, lane, 1);
  }
  const auto split =
      choice_.best(size_class, static_cast<double>(typical_bytes(size_class)), live(), false);
  return split ? split->allocation : unlearned();
}

std::optional<Allocation> ModelPolicy::on_silence(SizeClass size_class) {
  Class& known = classes_[size_class];
  known.late_rates.clear();
  if (const auto probe = std::exchange(known.probe, std::nullopt)) return probe->home;
  if (const auto trial = std::exchange(known.trial, std::nullopt)) {
    settle(known, lanes_of(trial->home()));
    return trial->home();
  }
  if (is_settled(known.state)) return std::nullopt;
  const auto bytes = static_cast<double>(typical_bytes(size_class));
  const auto measured = choice_.best(size_class, bytes, live(), true);
  return measured ? measured->allocation : unlearned();
}

ClassState ModelPolicy::state(SizeClass size_class) const {
  const auto known = classes_.find(size_class);
  return known == classes_.end() ? ClassState::kSearching : known->second.state;
}

int ModelPolicy::window_operations(SizeClass size_class) const {
  const auto known = classes_.find(size_class);
  if (known == classes_.end() || known->second.probe) return kSearchOperations;
  if (known->second.trial && known->second.trial->is_gentle()) return kBalanceOperations;
  if (is_settled(known->second.state)) return Timer::kOperations;
  return known->second.state == ClassState::kHot ? kBalanceOperations : kSearchOperations;
}

std::optional<Decision> ModelPolicy::on_search(Class& known, const Window& window,
                                               const Allocation& ran_by) {
  const bool has_changed = learn_in_search(known, window, ran_by);
  if (has_changed && (lanes_of(ran_by) & alone()) != 0) {  // which rail has, only slices show
    const auto bytes = static_cast<double>(window.bytes);
    if (const auto slices = choice_.best(window.size_class, bytes, sharing(), false)) {
      ++known.searched;
      known.after_drift = false;  // of rails it is not known: those that are early may be as before
      return Decision{
          slices->allocation, Cause::kDrift,
          "stripes take another time than before, and slices show which rail has changed"};
    }
  }
  return search_on(known, window, ran_by);
}

std::optional<Decision> ModelPolicy::search_on(Class& known, const Window& window,
                                               const Allocation& ran_by) {
  const SizeClass size_class = window.size_class;
  const auto bytes = static_cast<double>(window.bytes);
  const LaneSet set = lanes_of(ran_by);
  const bool is_over = ++known.searched >= kSearchWindows;
  if (auto back = take_back(known, window, set)) return back;
  if (!known.is_explored && !is_over) {
    if (known.searched < kLearnsRates && (set & alone()) != 0 &&
        exploration_.teaches_rates(size_class)) {
      return std::nullopt;
    }
    if (const auto next = exploration_.next(size_class, bytes)) {
      if (std::popcount(lanes_of(*next)) > 1) known.rated = exploration_.by_rates(size_class);
      return Decision{*next, Cause::kSearch,
                      "these rails have not been measured with messages of this size"};
    }
  }
  known.is_explored = true;
  const auto current = model_.predict(size_class, bytes, ran_by);
  const auto found = improvement(known, size_class, bytes, *current, worth_trying, is_over);
  if (!found) {
    settle(known, set);
    return std::nullopt;
  }
  const Decision decision =
      go_to(window.size_class, known, *found, set, cause_of(known, found->set == set), kPredicted);
  if (is_over) settle(known, found->set);
  return decision;
}

// What a move promised must show: lanes that serve short messages may take no less time for less of
// them, and would be given less and less.
std::optional<Decision> ModelPolicy::take_back(Class& known, const Window& window,
                                               LaneSet set) const {
  if (!known.moved) return std::nullopt;
  const Move move = *std::exchange(known.moved, std::nullopt);
  const auto before =
      model_.predict(window.size_class, static_cast<double>(window.bytes), move.from);
  if (lanes_of(move.from) != set || !before) return std::nullopt;
  if (static_cast<double>(slowest(window)) <= move.most * before->time) {
    known.contentment = 0;
    return std::nullopt;
  }
  known.contentment = std::clamp(4 * known.contentment, kLeastPatience, kMostPatience);
  known.content = known.contentment;
  settle(known, set);
  return Decision{move.from, Cause::kReturn, "the last move has not gained what was predicted"};
}

bool ModelPolicy::learn_in_search(Class& known, const Window& window, const Allocation& ran_by) {
  const LaneSet set = lanes_of(ran_by);
  const auto predicted =
      model_.predict(window.size_class, static_cast<double>(window.bytes), ran_by);
  const auto took = static_cast<double>(slowest(window));
  if (known.is_first && predicted && std::fabs(took / predicted->time - 1) > kSurprise) {
    model_.set_borrows(window.size_class, false);  // this class is not like its neighbours
  }
  known.is_first = false;
  if (known.after_drift && known.searched == 0) {
    const LaneChanges changed = lane_changes(model_, window, ran_by, set);
    learn_changes(window, ran_by, changed);
    known.before.resize(ran_by.size());
    for (const LaneChange& change : changed) {
      if (change.ratio <= 1) continue;
      double& before = known.before[static_cast<size_t>(change.lane)];
      before = std::max(before, part_of(1, ran_by[static_cast<size_t>(change.lane)]));
    }
    if (!changed.empty()) known.patience = 0;  // that was of lanes as they were
    return !changed.empty();
  }
  if (!model_.has_measured(window.size_class, sharing())) {
    const bool is_guarded =
        known.rated == ran_by &&
        (!exploration_.teaches_rates(window.size_class) || are_together(window));
    known.guarded = is_guarded ? set : 0;
  }
  learn_late_rates(known, window, ran_by);
  const bool is_naive = !known.after_drift && known.guarded == 0 && known.searched < kNaive;
  model_.learn(window, ran_by, is_naive);
  return false;
}

std::optional<Decision> ModelPolicy::on_settled(Class& known, const Window& window,
                                                const Allocation& ran_by) {
  const auto bytes = static_cast<double>(window.bytes);
  const LaneSet set = lanes_of(ran_by);
  const LaneChanges changed = lane_changes(model_, window, ran_by, set);
  const bool is_early = are_early(changed, set);
  const double earliness = is_early ? part_of_slowest(window, lanes_of(changed)) : 0;
  if (is_early && known.wait == 0 && were_late(known, window, ran_by, lanes_of(changed))) {
    known.wait = known.patience = kLeastPatience;  // as after a trial in vain
    known.earliness = earliness;
  }
  known.late_rates.clear();
  if (is_early && (known.patience == 0 || earliness < kFarEarlier * known.earliness)) {
    known.earliness = earliness;
    const bool is_gentle = known.wait > 0;
    if (!is_gentle) open_search(window.size_class, known, true);
    known.state = ClassState::kSearching;
    known.trial.emplace(window, ran_by, lanes_of(changed), is_gentle, known.before);
    return Decision{known.trial->raise(ran_by), is_gentle ? Cause::kRebalance : Cause::kDrift,
                    "a rail is through earlier than before, and is given more on trial"};
  }
  if (is_early) {
    --known.patience;
  } else if (!changed.empty()) {
    // In part from before the change, or a chance: it teaches nothing.
    open_search(window.size_class, known, true);
    return std::nullopt;
  }
  probes_.settled(window.size_class);
  model_.learn(window, ran_by, false);
  const auto current = model_.predict(window.size_class, bytes, ran_by);
  const auto found = improvement(known, window.size_class, bytes, *current, worth_balancing, false);
  const bool may_move = known.content == 0 || (found && found->set != set);
  if (known.content > 0) --known.content;
  if (may_move && found) {
    const Decision decision =
        go_to(window.size_class, known, *found, set, Cause::kRebalance, kPredicted);
    const auto promised = model_.predict(window.size_class, bytes, found->allocation);
    const double gain = 1 - promised->time / current->time;
    if (found->set == set) known.moved = Move{ran_by, 1 - kGained * gain};
    return decision;
  }
  const auto probe = probes_.next(window, ran_by);
  if (!probe) return std::nullopt;
  known.probe = Probe{ran_by, probe->is_doubt};
  return Decision{probe->allocation, Cause::kProbe,
                  probe->is_doubt ? "what was measured at first is measured again"
                                  : "these rails have not been measured for long"};
}

std::optional<Decision> ModelPolicy::on_trial(Class& known, const Window& window,
                                              const Allocation& ran_by) {
  LaneTrial trial = *std::exchange(known.trial, std::nullopt);
  const bool was_gentle = trial.is_gentle();
  const bool is_better = trial.look_at(window, ran_by);
  const bool goes_on = trial.may_go_on(window);
  if (is_better || (trial.was_worth_it() && !goes_on)) {
    learn_changes(window, ran_by, trial.changes(model_, window, ran_by), false);
  }
  if (goes_on && trial.is_gentle()) {
    known.trial = std::move(trial);
    return std::nullopt;
  }
  if (goes_on) {
    if (was_gentle) open_search(window.size_class, known, true);
    const Decision decision{trial.raise(ran_by), Cause::kDrift,
                            "the rail is still early, and is given more"};
    known.trial = std::move(trial);
    return decision;
  }
  if (trial.was_worth_it()) {
    known.wait = known.patience = 0;
    known.earliness = 0;
    known.before.clear();
    return search_on(known, window, ran_by);
  }
  if (!was_gentle) known.wait = std::clamp(4 * known.wait, kLeastPatience, kMostPatience);
  known.patience = was_gentle ? 0 : known.wait;
  settle(known, lanes_of(trial.home()));
  if (trial.was_late(window)) {
    if (trial.is_back()) learn_partly_back(known, window, trial.changes(model_, window, ran_by));
    if (auto decision = learn_from_trial(known, window, ran_by, trial.home())) return decision;
  }
  return Decision{trial.home(), Cause::kReturn,
                  "more for the rail that was early has made nothing faster"};
}

// It is faster than it was, but not as fast as before. Or else it had saved that up.
void ModelPolicy::learn_partly_back(Class& known, const Window& window,
                                    const LaneChanges& changes) {
  const bool is_faster = std::any_of(changes.begin(), changes.end(),
                                     [](const auto& it) { return it.ratio < kFaster; });
  if (!is_faster) return;
  known.before.clear();
  change_lanes(window.size_class, changes);
}

// A lane that was early and is late with more is no riddle any more: home may not be the best by
// what it took.
std::optional<Decision> ModelPolicy::learn_from_trial(Class& known, const Window& window,
                                                      const Allocation& ran_by,
                                                      const Allocation& home) {
  model_.learn(window, ran_by, false);
  const auto bytes = static_cast<double>(window.bytes);
  const auto current = model_.predict(window.size_class, bytes, home);
  if (!current || known.content > 0) return std::nullopt;
  const auto found = choice_.best(window.size_class, bytes, current->set, false);
  if (!found || found->set != current->set ||
      !choice_.is_better(true, bytes, *found, *current, worth_trying(*found, *current))) {
    return std::nullopt;
  }
  const Decision decision = go_to(window.size_class, known, *found, current->set, Cause::kRebalance,
                                  "the trial has shown what the rail takes");
  known.guarded = current->set;
  return decision;
}

std::optional<Decision> ModelPolicy::on_probe(Class& known, const Window& window,
                                              const Allocation& ran_by) {
  const auto bytes = static_cast<double>(window.bytes);
  Probe probe = *std::exchange(known.probe, std::nullopt);
  const Allocation home = probe.home;
  const LaneSet unused = lanes_of(ran_by) & ~lanes_of(home);
  const LaneChanges changed = lane_changes(model_, window, ran_by, unused);
  const bool is_as_known = model_.has_measured(window.size_class, lanes_of(ran_by)) &&
                           lane_changes(model_, window, ran_by, lanes_of(ran_by)).empty();
  if (const auto at_home = model_.predict(window.size_class, bytes, home)) {
    probes_.charge(at_home->time, window, !changed.empty());
  }
  learn_changes(window, ran_by, changed, unused != 0);
  if (!changed.empty() && (unused & alone()) != 0) {  // the rails may have, and so what is at home
    open_search(window.size_class, known, true);
    return Decision{home, Cause::kReturn, "stripes have changed, and so may have what is in use"};
  }
  const auto current = model_.predict(window.size_class, bytes, home);
  const auto found = choice_.best(window.size_class, bytes, live(), false);
  if (current && found &&
      choice_.is_better(is_settled(known.state), bytes, *found, *current,
                        worth_moving(*found, *current))) {
    open_search(window.size_class, known, false);
    return go_to(window.size_class, known, *found, lanes_of(home), Cause::kSearch,
                 "the probe has shown that this is better");
  }
  const bool is_promising = current && found && found->set == lanes_of(ran_by) &&
                            static_cast<double>(slowest(window)) < kLooksBetter * current->time;
  if (is_promising && choice_.is_spread(window.size_class)) {
    if (++probe.looks < kLooks) {
      known.probe = probe;
      return Decision{ran_by, Cause::kProbe, "it seems to be better, and is measured for longer"};
    }
    if (window.size_class >= kNotFlattered) {
      open_search(window.size_class, known, false);
      return go_to(window.size_class, known, *found, lanes_of(home), Cause::kSearch,
                   "the probe has shown that this is better");
    }
  }
  if (!probe.is_doubt) {
    probes_.ended(window.size_class, lanes_of(ran_by), is_as_known && probe.looks == 0);
  }
  return Decision{home, Cause::kReturn, "what was measured is not better"};
}

// The best split if it is better by enough; or else the best within the set in use, if that is. A
// set whose early lanes were not believed may yet turn out to take less, and goes first.
std::optional<Split> ModelPolicy::improvement(const Class& known, SizeClass size_class,
                                              double bytes, const Split& current, By by,
                                              bool only_measured) const {
  const LaneSet guarded = is_settled(known.state) ? 0 : known.guarded;
  for (const LaneSet among : {guarded, live(), current.set}) {
    auto found = choice_.best(size_class, bytes, among, only_measured);
    if (found &&
        choice_.is_better(is_settled(known.state), bytes, *found, current, by(*found, current)))
      return found;
  }
  return std::nullopt;
}

void ModelPolicy::open_search(SizeClass size_class, Class& known, bool after_drift) {
  known.searched = 0;
  known.after_drift = after_drift;
  known.guarded = 0;
  known.late_rates.clear();
  known.probe.reset();
  known.trial.reset();
  known.moved.reset();
  known.state = ClassState::kSearching;
  choice_.look_again(size_class);
  probes_.search_opens(size_class);
}

Decision ModelPolicy::go_to(SizeClass size_class, Class& known, const Split& split, LaneSet from,
                            Cause cause, absl::string_view why) {
  const bool is_balancing = split.set == from && std::popcount(split.set) > 1;
  if (is_settled(known.state)) open_search(size_class, known, false);
  known.state = is_balancing ? ClassState::kHot : ClassState::kSearching;
  return {split.allocation, cause, why};
}

void ModelPolicy::learn_late_rates(Class& known, const Window& window, const Allocation& ran_by) {
  known.late_rates.resize(ran_by.size());
  const Nanos last = slowest(window);
  for (size_t lane = 0; lane < ran_by.size(); ++lane) {
    if (window.lanes[lane].mean != last) continue;
    const double part = part_of(static_cast<double>(window.bytes), ran_by[lane]);
    known.late_rates[lane] = part / static_cast<double>(last);
  }
}

// Whether the search has shown what a trial of lanes that are early now would: they were the last
// ones at the rate that they have, and lately may have lived on what they had saved up.
bool ModelPolicy::were_late(const Class& known, const Window& window, const Allocation& ran_by,
                            LaneSet early) {
  const auto last = static_cast<double>(slowest(window));
  for (size_t lane = 0; lane < known.late_rates.size(); ++lane) {
    if (!contains(early, static_cast<int>(lane))) continue;
    const double part = part_of(static_cast<double>(window.bytes), ran_by[lane]);
    const double ratio = known.late_rates[lane] * last / part;
    if (ratio < 1 / kSameRate || ratio > kSameRate) return false;
    const double saved = part * (1 - static_cast<double>(window.lanes[lane].mean) / last);
    if (saved > LaneTrial::kMostSaved) return false;
  }
  return !known.late_rates.empty();
}

void ModelPolicy::settle(Class& known, LaneSet set) {
  known.state = std::popcount(set) == 1 ? ClassState::kCold : ClassState::kConverged;
}

Cause ModelPolicy::cause_of(const Class& known, bool is_same_set) {
  if (known.after_drift && known.searched == 1) return Cause::kDrift;
  return is_same_set ? Cause::kRebalance : Cause::kSearch;
}

void ModelPolicy::learn_changes(const Window& window, const Allocation& ran_by,
                                const LaneChanges& changes, bool may_be_early) {
  change_lanes(window.size_class, changes);
  model_.learn(window, ran_by, may_be_early);
}

void ModelPolicy::change_lanes(SizeClass size_class, const LaneChanges& changes) {
  for (const LaneChanges& each : {changes, implied(size_class, changes)}) {
    for (const auto& [lane, ratio] : each) {
      model_.lane_changed(size_class, lane, ratio);
      if (ratio > 1) choice_.became_slower(lane, ratio);
    }
  }
}

// Stripes go over the same rails as slices. When rails change, stripes take as much longer as all
// rails together do; when stripes change, who knows which rail has: all did, until they are
// measured.
LaneChanges ModelPolicy::implied(SizeClass size_class, const LaneChanges& changes) const {
  LaneChanges others;
  if (changes.empty()) return others;
  const bool are_stripes = contains(alone(), changes.front().lane);
  const double ratio = are_stripes ? changes.front().ratio : change_together(size_class, changes);
  const LaneSet affected = are_stripes ? sharing() : live() & alone();
  for (int lane = 0; lane < lanes(); ++lane) {
    if (contains(affected, lane)) others.push_back({lane, ratio});
  }
  return others;
}

// How many times as long a byte takes that all rails carry together.
double ModelPolicy::change_together(SizeClass size_class, const LaneChanges& changes) const {
  double before = 0;  // bytes a nanosecond
  double after = 0;
  for (int lane = 0; lane < lanes(); ++lane) {
    const auto line =
        contains(sharing(), lane) ? model_.line(size_class, sharing(), lane) : std::nullopt;
    if (!line) continue;
    const auto change = std::find_if(changes.begin(), changes.end(),
                                     [lane](const auto& it) { return it.lane == lane; });
    before += 1 / line->slope;
    after += 1 / line->slope / (change == changes.end() ? 1 : change->ratio);
  }
  return after == 0 ? 1 : before / after;
}

}  // namespace nezha
