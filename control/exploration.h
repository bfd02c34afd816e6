// SPDX-License-Identifier: Apache-2.0
// What of a size class must be measured before sets of lanes can be compared.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "control/lane_model.h"
#include "control/policy.h"
#include "control/split_choice.h"

namespace nezha {

// Where the rates are known at which lanes go on for long, long messages are first divided in
// proportion to them, and lanes that cannot be the best by their rates are not measured alone.
class Exploration {
 public:
  // All three stay where they are.
  Exploration(const Policy& policy, const LaneModel& model, const SplitChoice& choice,
              LaneRates rates)
      : policy_(policy), model_(model), choice_(choice), rates_(std::move(rates)) {}

  // Where a class begins, when nothing of it was measured.
  Allocation first(SizeClass size_class) const;
  // What must be measured next; none: nothing.
  std::optional<Allocation> next(SizeClass size_class, double bytes) const;

  // In proportion to the lanes' rates, or what bursts have shown of them. None if too little is
  // known, or messages are too short for it to matter.
  std::optional<Allocation> by_rates(SizeClass size_class) const;
  // Whether such messages teach stripes at what rates rails go on.
  bool teaches_rates(SizeClass size_class) const;

 private:
  bool are_rates_decisive(double bytes, double time) const;
  std::optional<std::vector<double>> rates(bool also_tried) const;
  std::optional<Allocation> unknown_alone(SizeClass size_class, LaneSet among) const;
  std::optional<int> promising_alone(SizeClass size_class, double bytes) const;

  const Policy& policy_;
  const LaneModel& model_;
  const SplitChoice& choice_;
  LaneRates rates_;
};

}  // namespace nezha
