// SPDX-License-Identifier: Apache-2.0
// When to look at lanes that are not in use, and at which.
#pragma once

#include <map>
#include <optional>

#include "control/lane_model.h"
#include "control/policy.h"
#include "control/probe_budget.h"
#include "control/split_choice.h"

namespace nezha {

// A probe is of what costs least for the time that it was not measured, within a budget; short
// messages' wait longer for each in a row that has only confirmed what was known. Apart from these,
// what was measured at first, when operations take longer than any later ones, is *doubted*: it is
// measured again twice after a class has settled.
class Probes {
 public:
  struct Probe {
    Allocation allocation;
    bool is_doubt = false;
  };

  // Of the policy's lanes. All three stay where they are.
  Probes(const Policy& lanes, LaneModel& model, const SplitChoice& choice)
      : lanes_(lanes), model_(model), choice_(choice) {}

  void open(SizeClass size_class) { classes_[size_class] = {}; }
  // An earlier run has left the class, or another policy: doubts are what they were.
  void resume(SizeClass size_class);
  void search_opens(SizeClass size_class);
  // Every window's operations, by whatever they ran.
  void ran(const Window& window) { budget_.ran(window); }
  // A window of a class that is settled.
  void settled(SizeClass size_class);
  // What is to be looked at after a window that ran by `current`; none: nothing.
  std::optional<Probe> next(const Window& window, const Allocation& current);
  // What a probe took, where its home takes `home` nanoseconds.
  void charge(double home, const Window& probe, bool has_changed) {
    budget_.charge(home, probe, has_changed);
  }
  // A probe that was no doubt has ended.
  void ended(SizeClass size_class, LaneSet set, bool is_as_known);

  // The part of the operations' time that they took longer by probes, as far as windows tell.
  double spent() const { return budget_.spent(); }

 private:
  static constexpr int kDoubts = 2;
  static constexpr int kLongAgo = 64;  // windows: no doubt waits for more

  struct Class {
    int doubts = kDoubts;              // how often lanes may be measured once more
    int settled = 0;                   // windows since the last search, without probes
    std::map<LaneSet, int> confirmed;  // what was known, by so many probes in a row
  };

  static bool is_in_doubt(const Class& known);
  std::optional<Allocation> doubtful(Class& known, const Window& window);
  std::optional<Allocation> cheapest(const Class& known, const Window& window,
                                     const Allocation& current) const;
  std::optional<Split> probe_of(const Window& window, const Split& current, LaneSet set) const;

  const Policy& lanes_;
  LaneModel& model_;
  const SplitChoice& choice_;
  std::map<SizeClass, Class> classes_;
  ProbeBudget budget_;
};

}  // namespace nezha
