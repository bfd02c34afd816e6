// SPDX-License-Identifier: Apache-2.0
// What of a size class must be measured before sets of lanes can be compared.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "control/lane_model.h"
#include "control/policy.h"
#include "control/split_choice.h"

namespace nezha {

// Where the rates are known at which lanes go on for long, they say what is worth a measurement:
// long messages are first divided in proportion to them, and of short ones the fastest lane is
// measured first, and those that cannot be the best never are. A lane that was not measured for its
// rate is *assumed* to take what that says.
class Exploration {
 public:
  // All three stay where they are.
  Exploration(const Policy& policy, LaneModel& model, const SplitChoice& choice, LaneRates rates)
      : policy_(policy), model_(model), choice_(choice), rates_(std::move(rates)) {}

  void open(SizeClass size_class) { classes_[size_class] = {}; }

  // In what follows, open() was called for the class.

  // Where a class begins, when nothing of it was measured.
  Allocation first(SizeClass size_class) const;
  // What must be measured next; none: nothing.
  std::optional<Allocation> next(SizeClass size_class, double bytes) const;

  // In proportion to the lanes' rates, or what bursts have shown of them. None if too little is
  // known, or messages are too short for it to matter.
  std::optional<Allocation> by_rates(SizeClass size_class) const;
  // Whether such messages teach stripes at what rates rails go on.
  bool teaches_rates(SizeClass size_class) const;
  // After a window by that set, when nothing was measured: whether short messages go on waiting for
  // rates. They do not for ever.
  bool goes_on_waiting(const Window& window, LaneSet set);

  // After a window of short messages: lanes that cannot even carry the bytes in the time that the
  // fastest one takes for all are assumed to be slow.
  void assume_slow(const Window& window);
  // Forgets what was assumed of a lane of whose rate more is known by now; none: of none.
  std::optional<int> forget_assumed(const Window& window);
  // Other lanes than those that messages settled on, though they are far faster.
  LaneSet surprised_by(const Window& window, LaneSet set) const;

 private:
  struct Class {
    double awaited = 0;   // for how long rates were, in nanoseconds of windows' operations
    LaneSet assumed = 0;  // lanes that rates say are too slow to be measured
  };

  bool are_rates_decisive(double bytes, double time) const;
  bool goes_by_rates(SizeClass size_class) const;
  std::optional<std::vector<double>> rates(bool also_tried) const;
  void assume_alone(const Window& window, int lane, double time);
  std::optional<Allocation> unknown_alone(SizeClass size_class, LaneSet among) const;
  std::optional<int> promising_alone(SizeClass size_class, double bytes) const;

  const Policy& policy_;
  LaneModel& model_;
  const SplitChoice& choice_;
  LaneRates rates_;
  std::map<SizeClass, Class> classes_;
};

}  // namespace nezha
