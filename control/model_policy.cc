// SPDX-License-Identifier: Apache-2.0
#include "control/model_policy.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace nezha {
namespace {

constexpr int kSearchOperations = 3;  // in a window of a search
// A search that has not ended after this many windows takes what is predicted to be the best.
constexpr int kSearchWindows = 10;
// The policy follows a prediction whose gain exceeds its error. The gain that it requires is at
// least kLeastGain and at most kMostGain, or kMostGainWithin within a set of lanes.
constexpr double kLeastGain = 0.02;
constexpr double kMostGain = 0.3;
constexpr double kMostGainWithin = 0.1;

// Lanes need not rest if their LaneChange::ratio is less than this part of what it was when an
// experiment last gave them more.
constexpr double kFarEarlier = 0.65;
// A lane takes at most this many times its part at once. On the way to another division it also
// takes its share of what no lane takes yet. If a token bucket held its small part, the time of
// that part says little about a large one.
constexpr double kMostMore = 2;

// The reason, to be read by people.
constexpr absl::string_view kPredicted = "the measurements predict that this is faster";

bool is_worthwhile(const Split& candidate, const Split& current) {
  const double most = candidate.set == current.set ? kMostGainWithin : kMostGain;
  const double gain = std::clamp(std::max(candidate.error, current.error), kLeastGain, most);
  return candidate.time < (1 - gain) * current.time;
}

// Returns the next division on the way from one to another over the same lanes. What no lane takes
// yet is divided among them as before.
Allocation stepwise(const Allocation& from, const Allocation& to) {
  RecycledVector<double> parts;
  double rest = SliceBounds::kWhole;
  for (size_t lane = 0; lane < to.size(); ++lane) {
    rest -= parts.emplace_back(std::min<double>(to[lane], kMostMore * from[lane]));
  }
  for (size_t lane = 0; lane < to.size(); ++lane) parts[lane] += part_of(rest, from[lane]);
  return in_proportion(parts);
}

}  // namespace

Allocation ModelPolicy::open(SizeClass size_class) {
  classes_[size_class] = {};
  const auto bytes = static_cast<double>(typical_bytes(size_class));
  const Candidates usual = candidates(Algorithm::kAuto);
  if (const auto predicted = usual.best(size_class, bytes, live())) return predicted->allocation;
  return usual.unmeasured(size_class, bytes).value_or(unlearned());
}

void ModelPolicy::resume(const Window& last, const Way& ran_by, ClassState state) {
  Class& known = classes_[last.size_class] = {};
  known.state = state;
  known.algorithm = ran_by.algorithm;
  model(known.algorithm).learn(last, restricted_to(took_part(last), ran_by.allocation));
}

bool ModelPolicy::may_use(SizeClass size_class, Algorithm algorithm) const {
  const std::vector<Algorithm> all = algorithms(size_class);
  return std::find(all.begin(), all.end(), algorithm) != all.end();
}

std::optional<Decision> ModelPolicy::on_window(const Window& window, const Allocation& allocation) {
  Class& known = classes_[window.size_class];
  const Allocation ran_by = restricted_to(took_part(window) & lanes_of(allocation), allocation);
  budget_.ran(window);
  if (known.experiment) return on_experiment(known, window, ran_by);
  return is_settled(known.state) ? on_settled(known, window, ran_by)
                                 : on_search(known, window, ran_by, allocation);
}

// Stripes take other times from now on, because they use other rails.
Allocation ModelPolicy::on_lanes(SizeClass size_class, const Allocation& /*current*/) {
  Class& known = classes_[size_class];
  // The first measurements and losses may come from ranks that had just started.
  open_search(known, false);
  known.rests.forget();
  known.is_explored = false;
  for (LaneModel& it : models_) it.forget(size_class, alone());
  const auto bytes = static_cast<double>(typical_bytes(size_class));
  const auto split = candidates(known.algorithm).best(size_class, bytes, live());
  return split ? split->allocation : unlearned();
}

std::optional<Allocation> ModelPolicy::on_silence(SizeClass size_class) {
  Class& known = classes_[size_class];
  if (known.experiment) return lose(known).allocation;
  if (is_settled(known.state)) return std::nullopt;
  // Nothing can be measured now, so a division that other classes suggest could not be verified.
  const auto bytes = static_cast<double>(typical_bytes(size_class));
  const auto split = candidates(known.algorithm).best(size_class, bytes, live());
  const bool is_measured = split && model(known.algorithm).has_measured(size_class, split->set);
  return is_measured ? split->allocation : unlearned();
}

ClassState ModelPolicy::state(SizeClass size_class) const {
  const auto known = classes_.find(size_class);
  return known == classes_.end() ? ClassState::kSearching : known->second.state;
}

int ModelPolicy::window_operations(SizeClass size_class) const {
  const auto known = classes_.find(size_class);
  if (known == classes_.end()) return kSearchOperations;
  if (known->second.experiment) return known->second.experiment->window_operations(size_class);
  return is_settled(known->second.state) ? Timer::kOperations : kSearchOperations;
}

// ---- Search ------------------------------------------------------------------------------------

// `asked` is the class's allocation, of which lanes may have got no bytes of a short message.
std::optional<Decision> ModelPolicy::on_search(Class& known, const Window& window,
                                               const Allocation& ran_by, const Allocation& asked) {
  const SizeClass size_class = window.size_class;
  const auto bytes = static_cast<double>(window.bytes);
  const LaneSet set = lanes_of(ran_by);
  const bool is_over = ++known.searched >= kSearchWindows;
  const bool is_drift = known.after_drift && known.searched == 1;
  LaneModel& model = this->model(known.algorithm);
  if (is_drift) {
    for (const LaneChange& it : lane_changes(model, window, ran_by, set)) {
      for (LaneModel& changed : models_) changed.lane_changed(size_class, it.lane, it.ratio);
      known.rests.forget();
    }
  }
  model.learn(window, ran_by);
  if (!known.is_explored && !is_over) {
    const auto next = candidates(known.algorithm).unmeasured(size_class, bytes);
    if (next && *next != asked) {
      return Decision{*next, is_drift ? Cause::kDrift : Cause::kSearch,
                      "these rails have not been measured with messages of this size"};
    }
  }
  known.is_explored = true;
  const auto found = improvement(known, window, *model.predict(size_class, bytes, ran_by));
  if (!found) {
    settle(known, set);
    return std::nullopt;
  }
  const bool is_same_set = found->set == set;
  known.state = is_same_set ? ClassState::kHot : ClassState::kSearching;
  if (is_over) settle(known, found->set);
  const Cause cause = is_drift ? Cause::kDrift : is_same_set ? Cause::kRebalance : Cause::kSearch;
  return Decision{is_same_set ? stepwise(ran_by, found->allocation) : found->allocation, cause,
                  kPredicted};
}

// Returns the best split if it is better by enough. After a drift, other sets are left to
// experiments, because a rail that was not in use may have been fast for a few operations by what
// it had saved up.
std::optional<Split> ModelPolicy::improvement(const Class& known, const Window& window,
                                              const Split& current) const {
  const LaneSet among = known.after_drift ? current.set : live();
  auto found =
      candidates(known.algorithm).best(window.size_class, static_cast<double>(window.bytes), among);
  return found && is_worthwhile(*found, current) ? found : std::nullopt;
}

void ModelPolicy::open_search(Class& known, bool after_drift) {
  known.state = ClassState::kSearching;
  known.searched = 0;
  known.after_drift = after_drift;
  end_experiment(known);
}

void ModelPolicy::settle(Class& known, LaneSet set) {
  known.state = std::popcount(set) == 1 ? ClassState::kCold : ClassState::kConverged;
}

// ---- Settled -----------------------------------------------------------------------------------

std::optional<Decision> ModelPolicy::on_settled(Class& known, const Window& window,
                                                const Allocation& ran_by) {
  const auto bytes = static_cast<double>(window.bytes);
  LaneModel& model = this->model(known.algorithm);
  const LaneChanges changed = lane_changes(model, window, ran_by, lanes_of(ran_by));
  const bool is_early = are_early(changed, lanes_of(ran_by));
  if (!changed.empty() && !is_early) {  // part of the window may be from before the change
    open_search(known, true);
    return std::nullopt;
  }
  known.rests.ran(window);
  if (is_early) {
    if (auto decision = more_for(known, window, ran_by, changed)) return decision;
  }
  model.learn(window, ran_by, /*may_be_early=*/false);
  const auto current = model.predict(window.size_class, bytes, ran_by);
  const auto found = candidates(known.algorithm).best(window.size_class, bytes, lanes_of(ran_by));
  if (found && found->set == current->set && is_worthwhile(*found, *current)) {
    open_search(known, false);
    known.state = ClassState::kHot;
    return Decision{stepwise(ran_by, found->allocation), Cause::kRebalance, kPredicted};
  }
  return next_experiment(known, window, ran_by);
}

// Begins an experiment with larger parts for early lanes. A part grows by the factor by which the
// lane seems faster, at most by kMostMore.
std::optional<Decision> ModelPolicy::more_for(Class& known, const Window& window,
                                              const Allocation& ran_by, const LaneChanges& early) {
  double ratio = 1;
  for (const LaneChange& it : early) ratio = std::min(ratio, it.ratio);
  const Rests::Key key{known.algorithm, lanes_of(ran_by), /*is_more=*/true};
  if (ratio < kFarEarlier * known.earliest) known.rests.forget(key);
  if (!known.rests.is_due(key)) return std::nullopt;
  known.earliest = ratio;
  RecycledVector<double> weights(ran_by.begin(), ran_by.end());
  for (const LaneChange& it : early) {
    weights[static_cast<size_t>(it.lane)] *= std::min(kMostMore, 1 / it.ratio);
  }
  return begin(known, ran_by, static_cast<double>(slowest(window)),
               {known.algorithm, in_proportion(weights)},
               "a rail finishes earlier than before, so an experiment gives more to it");
}

// ---- Experiments -------------------------------------------------------------------------------

Decision ModelPolicy::begin(Class& known, const Allocation& home, double home_time, Way candidate,
                            absl::string_view why) {
  known.experiment.emplace(Way{known.algorithm, home}, home_time, candidate);
  return {std::move(candidate.allocation), Cause::kProbe, why, candidate.algorithm};
}

// Begins the experiment whose candidate is predicted to take the least time. By each algorithm,
// candidates are single lanes, the home's set, sets that differ from it by one lane, and the best
// set. A candidate must be due, and either the budget affords it, or it has not lost yet and is
// predicted to be better than the home. The other algorithm by the home's single lane counts as
// predicted to be better until it was measured, because no measurement predicts its time.
std::optional<Decision> ModelPolicy::next_experiment(Class& known, const Window& window,
                                                     const Allocation& ran_by) {
  const SizeClass size_class = window.size_class;
  const auto bytes = static_cast<double>(window.bytes);
  const Split home = *model(known.algorithm).predict(size_class, bytes, ran_by);
  std::optional<Split> next;
  Algorithm by = known.algorithm;
  for (const Algorithm algorithm : algorithms(size_class)) {
    const Candidates candidates = this->candidates(algorithm);
    const auto best = candidates.best(size_class, bytes, sharing());
    for (const LaneSet set : usable_sets()) {
      const bool is_near = std::popcount(set ^ home.set) <= 1 || std::has_single_bit(set) ||
                           (best && set == best->set);
      const bool is_home = set == home.set && algorithm == known.algorithm;
      if (!is_near || is_home || !known.rests.is_due({algorithm, set})) continue;
      auto trial = candidates.trial_of(size_class, bytes, set, home);
      if (!trial || (next && next->time <= trial->time)) continue;
      const bool is_unknown = set == home.set && std::has_single_bit(set) &&
                              !model(algorithm).has_measured(size_class, set);
      const bool is_better =
          (is_unknown || is_worthwhile(*trial, home)) && known.rests.is_fresh({algorithm, set});
      const double cost = Experiment::cost_of_glance(home.time, trial->time);
      if (!is_better && !budget_.affords(cost)) continue;
      next = std::move(trial);
      by = algorithm;
    }
  }
  if (!next) return std::nullopt;
  return begin(known, ran_by, home.time, {by, next->allocation},
               by == known.algorithm ? "an experiment uses these rails"
                                     : "an experiment uses another algorithm");
}

std::optional<Decision> ModelPolicy::on_experiment(Class& known, const Window& window,
                                                   const Allocation& ran_by) {
  const auto bytes = static_cast<double>(window.bytes);
  Experiment& it = *known.experiment;
  LaneModel& model = this->model(it.candidate().algorithm);
  const LaneSet set = lanes_of(ran_by);
  if (set != lanes_of(it.candidate().allocation)) return lose(known);  // a lane got no bytes
  if (!may_use(window.size_class, it.candidate().algorithm)) return lose(known);
  const bool is_more = it.is_more();
  if (!is_more) {
    const bool is_other_algorithm = it.candidate().algorithm != known.algorithm;
    const LaneSet suspects = is_other_algorithm ? set : set & ~lanes_of(it.home().allocation);
    for (const LaneChange& change : lane_changes(model, window, ran_by, suspects)) {
      model.lane_changed(window.size_class, change.lane, change.ratio);
    }
    model.learn(window, ran_by);
  }
  const auto home =
      this->model(known.algorithm).predict(window.size_class, bytes, it.home().allocation);
  if (!home) return lose(known);
  const auto promised =
      is_more ? std::nullopt : model.finish_together(window.size_class, bytes, set);
  const double promise = promised ? promised->time : 0;
  const auto verdict = it.look_at(window, home->time, promise);
  if (verdict == Experiment::Verdict::kLost) return lose(known);
  if (verdict == Experiment::Verdict::kWon) return adopt(known, window, ran_by);
  const bool is_off = promised && promise < (1 - kLeastGain) * static_cast<double>(slowest(window));
  if (!is_off) return std::nullopt;
  Allocation next = stepwise(ran_by, promised->allocation);
  if (next == ran_by || !it.divide(next)) return std::nullopt;
  return Decision{std::move(next), Cause::kProbe, kPredicted};
}

std::optional<Experiment> ModelPolicy::end_experiment(Class& known) {
  if (known.experiment) budget_.charge(known.experiment->cost());
  return std::exchange(known.experiment, std::nullopt);
}

Decision ModelPolicy::adopt(Class& known, const Window& window, const Allocation& ran_by) {
  const Experiment experiment = *end_experiment(known);
  const Way& home = experiment.home();
  const Way& candidate = experiment.candidate();
  LaneModel& model = this->model(candidate.algorithm);
  if (experiment.is_more()) {
    for (const LaneChange& it : lane_changes(model, window, ran_by, lanes_of(ran_by))) {
      model.lane_changed(window.size_class, it.lane, it.ratio);
    }
    model.learn(window, ran_by);
  }
  const bool is_other_way =
      candidate.algorithm != home.algorithm ||
      ((lanes_of(candidate.allocation) ^ lanes_of(home.allocation)) & alone());
  known.algorithm = candidate.algorithm;
  known.earliest = 1;
  settle(known, lanes_of(candidate.allocation));
  if (experiment.is_more()) {  // the next windows show how much more
    open_search(known, true);
    known.state = ClassState::kHot;
  }
  return {candidate.allocation, is_other_way ? Cause::kWay : Cause::kSearch,
          "the experiment has shown that this is faster", candidate.algorithm};
}

Decision ModelPolicy::lose(Class& known) {
  const Experiment experiment = *end_experiment(known);
  known.rests.lost(experiment.key());
  return {experiment.home().allocation, Cause::kReturn, "the experiment was not faster",
          known.algorithm};
}

std::vector<Algorithm> ModelPolicy::algorithms(SizeClass size_class) const {
  std::vector<Algorithm> all{Algorithm::kAuto};
  const auto rival = rival_ ? rival_(size_class) : std::nullopt;
  if (rival) all.push_back(*rival);
  return all;
}

}  // namespace nezha
