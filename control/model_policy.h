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
#include "control/probes.h"
#include "control/split_choice.h"

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
  // By lane, in bytes per second; 0: unknown. As what lanes carried has shown them, or `also`
  // roughly, by a few bursts.
  using Rates = std::function<std::vector<double>(bool also_tried)>;
  static constexpr double kNoRate = -1;  // of a lane that is not to be waited for

  explicit ModelPolicy(int lanes, LaneSet alone = 0, Rates rates = nullptr)
      : Policy(lanes, alone),
        model_(lanes),
        rates_(std::move(rates)),
        choice_(*this, model_),
        probes_(*this, model_, choice_) {}

  Allocation open(SizeClass size_class) override;
  void resume(const Window& last, const Allocation& ran_by, ClassState state) override;
  std::optional<Decision> on_window(const Window& window, const Allocation& allocation) override;
  Allocation on_lanes(SizeClass size_class, const Allocation& current) override;
  std::optional<Allocation> on_silence(SizeClass size_class) override;
  std::vector<double> times_alone(const Window& window) const override;
  void assume(const Window& last, const Allocation& ran_by,
              const std::vector<double>& times_alone) override;
  ClassState state(SizeClass size_class) const override;
  int window_operations(SizeClass size_class) const override;

  // The part of the operations' time that they took longer by probes, as far as windows tell.
  double probing() const { return probes_.spent(); }

 private:
  struct Move {
    Allocation from;
    double most = 1;  // of what `from` takes, as predicted: more, and it was not worth it
  };
  struct Probe {
    Allocation home;  // where it returns to
    bool is_doubt = false;
    int looks = 0;  // windows of it that were promising
  };
  struct Class {
    ClassState state = ClassState::kSearching;
    int searched = 0;          // windows of this search
    bool is_first = true;      // no window yet
    bool is_explored = false;  // what must be measured first has been
    double awaited = 0;        // for how long rates were, in nanoseconds of windows' operations
    LaneSet assumed = 0;       // lanes that rates say are too slow to be measured
    bool after_drift = false;  // what opened this search, or lanes came or went
    std::optional<Allocation> rated;  // by the lanes' rates when it was first divided
    bool is_by_rates = false;         // what was measured first was that, and lanes were together
    std::optional<Probe> probe;       // that is under way
    std::optional<LaneTrial> trial;
    std::optional<Move> moved;  // within a set that had settled, until a window shows its worth
    int contentment = 0;  // windows without such moves, after the last one that was worth none
    int content = 0;      // how many of them are left
    int wait = 0;         // windows in which early lanes are let be, after the last trial
    int patience = 0;     // how many of them are left
    double refuted = 1;   // the boldest claim of trials since one that was worth it
  };

  std::optional<Decision> on_search(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> search_on(Class& known, const Window& window, const Allocation& ran_by);
  bool learn_in_search(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> on_settled(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> on_trial(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> on_probe(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> take_back(Class& known, const Window& window, LaneSet set) const;
  void open_search(SizeClass size_class, Class& known, bool after_drift);
  Decision go_to(SizeClass size_class, Class& known, const Split& split, LaneSet from, Cause cause);
  static Cause cause_of(const Class& known, bool is_same_set);
  static void settle(Class& known, LaneSet set);

  void learn_changes(const Window& window, const Allocation& ran_by, const LaneChanges& changes,
                     bool may_be_early = true);
  LaneChanges implied(SizeClass size_class, const LaneChanges& changes) const;
  double change_together(SizeClass size_class, const LaneChanges& changes) const;
  std::optional<Allocation> unexplored(SizeClass size_class, double bytes) const;
  bool awaits_rates(Class& known, const Window& window, LaneSet set) const;
  void assume_slow(Class& known, const Window& window);
  std::optional<int> wrongly_assumed(const Class& known, const Window& window) const;
  LaneSet surprised_by(const Window& window, LaneSet set) const;
  void assume_alone(const Window& window, int lane, double time);
  bool goes_by_rates(SizeClass size_class) const;
  std::optional<std::vector<double>> rates(bool also_tried) const;
  bool tells_rates(SizeClass size_class) const;
  std::optional<Allocation> by_rates(SizeClass size_class) const;
  std::optional<Allocation> unknown_alone(SizeClass size_class, LaneSet among) const;
  std::optional<int> promising_alone(SizeClass size_class, double bytes) const;
  // By which part a split must be better than another one.
  using By = double (*)(const Split&, const Split&);
  std::optional<Split> improvement(const Class& known, SizeClass size_class, double bytes,
                                   const Split& current, By by, bool only_measured) const;

  LaneModel model_;
  Rates rates_;
  SplitChoice choice_;
  Probes probes_;
  std::map<SizeClass, Class> classes_;
};

}  // namespace nezha
