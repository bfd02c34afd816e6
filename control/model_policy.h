// SPDX-License-Identifier: Apache-2.0
// The default policy: learns what lanes take and lets those that finish a message first finish it
// together. Whether on one lane or on several falls out of the same computation, except for
// messages too short for several.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "control/exploration.h"
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
// Lanes that are early by a division in proportion to their rates are taken to live on what they
// have saved up.
class ModelPolicy final : public Policy {
 public:
  explicit ModelPolicy(int lanes, LaneSet alone = 0, LaneRates rates = nullptr)
      : Policy(lanes, alone),
        model_(lanes),
        choice_(*this, model_, rates),
        exploration_(*this, model_, choice_, std::move(rates)),
        probes_(*this, model_, choice_) {}

  Allocation open(SizeClass size_class) override;
  void resume(const Window& last, const Allocation& ran_by, ClassState state) override;
  std::optional<Decision> on_window(const Window& window, const Allocation& allocation) override;
  Allocation on_lanes(SizeClass size_class, const Allocation& current) override;
  std::optional<Allocation> on_silence(SizeClass size_class) override;
  const LaneModel* model() const override { return &model_; }
  void assume(const Window& last, const Allocation& ran_by, const LaneModel& other) override;
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
    bool after_drift = false;  // a drift opened this search, or lanes that came or went later
    std::optional<Allocation> rated;  // by the lanes' rates when it was first divided
    LaneSet guarded = 0;              // whose rates are known: if early they are not believed
    // By lane: the largest part of messages that it had when it became slower, until a trial has
    // given it that again; 0: it did not.
    std::vector<double> before;
    // By lane: bytes a nanosecond when it was the last one in this search; 0: it never was.
    std::vector<double> late_rates;
    std::optional<Probe> probe;  // that is under way
    std::optional<LaneTrial> trial;
    std::optional<Move> moved;  // within a set that had settled, until a window shows its worth
    int contentment = 0;  // windows without such moves, after the last one that was worth none
    int content = 0;      // how many of them are left
    // Windows in which early lanes are let be, after a trial that was not worth it, or a search
    // that has shown the same.
    int wait = 0;
    int patience = 0;  // how many of them are left
    // part_of_slowest() of the early lanes when the last trial began, or was spared.
    double earliness = 0;
  };

  std::optional<Decision> on_search(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> search_on(Class& known, const Window& window, const Allocation& ran_by);
  bool learn_in_search(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> on_settled(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> on_trial(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> on_probe(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> learn_from_trial(Class& known, const Window& window,
                                           const Allocation& ran_by, const Allocation& home);
  std::optional<Decision> take_back(Class& known, const Window& window, LaneSet set) const;
  void open_search(SizeClass size_class, Class& known, bool after_drift);
  Decision go_to(SizeClass size_class, Class& known, const Split& split, LaneSet from, Cause cause,
                 absl::string_view why);
  static Cause cause_of(const Class& known, bool is_same_set);
  static void learn_late_rates(Class& known, const Window& window, const Allocation& ran_by);
  static bool were_late(const Class& known, const Window& window, const Allocation& ran_by,
                        LaneSet early);
  static void settle(Class& known, LaneSet set);

  void learn_changes(const Window& window, const Allocation& ran_by, const LaneChanges& changes,
                     bool may_be_early = true);
  void learn_partly_back(Class& known, const Window& window, const LaneChanges& changes);
  void change_lanes(SizeClass size_class, const LaneChanges& changes);
  LaneChanges implied(SizeClass size_class, const LaneChanges& changes) const;
  double change_together(SizeClass size_class, const LaneChanges& changes) const;
  // By which part a split must be better than another one.
  using By = double (*)(const Split&, const Split&);
  std::optional<Split> improvement(const Class& known, SizeClass size_class, double bytes,
                                   const Split& current, By by, bool only_measured) const;

  LaneModel model_;
  SplitChoice choice_;
  Exploration exploration_;
  Probes probes_;
  std::map<SizeClass, Class> classes_;
};

}  // namespace nezha
