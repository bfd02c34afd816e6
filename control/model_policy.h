// The default policy: learns what lanes take and lets those that finish a message first finish it
// together. Whether on one lane or on several falls out of the same computation, except for
// messages too short for several.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "control/lane_changes.h"
#include "control/lane_model.h"
#include "control/lane_trial.h"
#include "control/policy.h"
#include "control/probe_budget.h"

namespace nezha {

// A class's life: a *search*, in short windows, tries what the model says is best until it says
// nothing better than what was measured. Then windows are long; the allocation changes when the
// lanes' times have (a *drift*, which opens a search at once), when a better balance shows, or when
// a *probe*, a short window by another set of lanes, or a few if it is promising, found that set to
// be better.
//
// A drift is confirmed by a short window by the same allocation; that lanes are faster by a
// *trial*, in which they get more. Where stripes have changed, slices are looked at next, since
// stripes hide which rail it was.
//
// Where the rates are known at which lanes go on for long, as stripes learn them, a division in
// proportion to them is the first to be tried, and lanes that are early by it are taken to live on
// what they have saved up.
class ModelPolicy final : public Policy {
 public:
  // By lane, in bytes per second; 0: unknown. Asked when a search begins.
  using Rates = std::function<std::vector<double>()>;

  explicit ModelPolicy(int lanes, LaneSet alone = 0, Rates rates = nullptr)
      : Policy(lanes, alone),
        model_(lanes),
        rates_(std::move(rates)),
        carried_(static_cast<size_t>(lanes)) {}

  Allocation open(SizeClass size_class) override;
  void resume(const Window& last, const Allocation& ran_by, ClassState state) override;
  std::optional<Decision> on_window(const Window& window, const Allocation& allocation) override;
  Allocation on_lanes(SizeClass size_class, const Allocation& current) override;
  std::vector<double> times_alone(const Window& window) const override;
  void assume(const Window& last, const Allocation& ran_by,
              const std::vector<double>& times_alone) override;
  ClassState state(SizeClass size_class) const override;
  int window_operations(SizeClass size_class) const override;

  // The part of the operations' time that they took longer by probes, as far as windows tell.
  double probing() const { return budget_.spent(); }

 private:
  static constexpr int kDoubts = 2;
  static constexpr int kCalm = 256;  // windows, for each lane that is measured again
  static constexpr int kLongAgo = kCalm * kMaxLanes;

  struct Move {
    Allocation from;
    double most = 1;  // of what `from` takes, as predicted: more, and it was not worth it
  };
  struct Class {
    ClassState state = ClassState::kSearching;
    int searched = 0;                 // windows of this search
    bool is_first = true;             // no window yet
    bool is_explored = false;         // what must be measured first has been
    bool after_drift = false;         // what opened this search, or lanes came or went
    std::optional<Allocation> rated;  // by the lanes' rates when it was first divided
    bool is_by_rates = false;         // what was measured first was that, and lanes were together
    bool is_cut = true;               // messages are long enough for each lane to get some
    double probe_part = 1. / 256;     // of a probed lane that the model would give nothing
    std::optional<Allocation> home;   // where a probe returns to
    int looks = 0;                    // windows of the probe that is under way
    std::optional<LaneTrial> trial;
    std::optional<Move> moved;  // within a set that had settled, until a window shows its worth
    int contentment = 0;    // windows without such moves, after the last one that was worth none
    int content = 0;        // how many of them are left
    int doubts = kDoubts;   // how often lanes may be measured once more
    LaneSet doubted = 0;    // of short messages: those that still are to be
    int calm = kLongAgo;    // settled windows since a change raised doubts
    bool is_doubt = false;  // the probe that is under way is such a one
    std::map<LaneSet, int> confirmed;  // what was known, by so many probes in a row
    int settled = 0;                   // windows since the last search, without probes
    int wait = 0;        // windows in which early lanes are let be, after the last trial
    int patience = 0;    // how many of them are left
    double refuted = 1;  // the boldest claim of trials since one that was worth it
  };

  std::optional<Decision> on_search(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> search_on(Class& known, const Window& window, const Allocation& ran_by);
  bool learn_in_search(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> on_settled(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> on_trial(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> on_probe(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> take_back(Class& known, const Window& window, LaneSet set) const;
  static bool is_in_doubt(const Class& known);
  std::optional<Allocation> doubtful(Class& known, const Window& window, LaneSet set);
  std::optional<Allocation> doubtful_together(Class& known, const Window& window);
  std::optional<Allocation> doubtful_alone(Class& known, const Window& window, LaneSet set);
  static void open_search(Class& known, bool after_drift);
  static Decision go_to(Class& known, const Split& split, LaneSet from, Cause cause);
  static Cause cause_of(const Class& known, bool is_same_set);
  static void settle(Class& known, LaneSet set);

  void learn_changes(const Window& window, const Allocation& ran_by, const LaneChanges& changes,
                     bool may_be_early = true);
  LaneChanges implied(SizeClass size_class, const LaneChanges& changes) const;
  double change_together(SizeClass size_class, const LaneChanges& changes) const;
  std::optional<Allocation> unexplored(SizeClass size_class, double bytes) const;
  bool tells_rates(SizeClass size_class) const;
  std::optional<Allocation> by_rates(SizeClass size_class) const;
  std::optional<Allocation> unknown_alone(SizeClass size_class, LaneSet among) const;
  std::optional<int> promising_alone(SizeClass size_class, double bytes) const;
  bool is_spread(SizeClass size_class) const;
  // Whether messages of the class may go over that set.
  bool suits(SizeClass size_class, LaneSet set) const;
  // Whether large messages rather go over that set.
  bool is_steady(LaneSet set, double bytes) const;
  bool is_better(const Class& known, double bytes, const Split& candidate, const Split& current,
                 double by) const;
  std::optional<Split> best(SizeClass size_class, double bytes, LaneSet among,
                            bool only_measured) const;
  // By which part a split must be better than another one.
  using By = double (*)(const Split&, const Split&);
  std::optional<Split> improvement(const Class& known, SizeClass size_class, double bytes,
                                   const Split& current, By by, bool only_measured) const;
  void saw_carried(const Window& window, const Allocation& ran_by);
  double most(SizeClass size_class, int lane, double bytes) const;
  std::optional<Allocation> in_steps(SizeClass size_class, double bytes,
                                     const Allocation& allocation) const;
  std::optional<Allocation> next_probe(const Window& window, const Allocation& current) const;
  std::optional<Split> probe_of(const Window& window, const Split& current, LaneSet set) const;

  LaneModel model_;
  Rates rates_;
  std::vector<double> carried_;  // by lane: the most bytes that it was seen to carry in time
  std::map<SizeClass, Class> classes_;
  ProbeBudget budget_;
};

}  // namespace nezha
