// SPDX-License-Identifier: Apache-2.0
// Which lanes take other times than they did.
#pragma once

#include <vector>

#include "control/allocation.h"
#include "control/lane_model.h"
#include "control/timer.h"

namespace nezha {

// A byte takes so many times what it did.
struct LaneChange {
  int lane = 0;
  double ratio = 1;
};
using LaneChanges = std::vector<LaneChange>;

// Those of `suspects` that have changed, by a window. Noise makes all lanes of an operation late,
// by far more than balance is worth: what tells a change is how late lanes are beside each other,
// measured by what the model expects noise to be. None where the set was not measured before.
LaneChanges lane_changes(const LaneModel& model, const Window& window, const Allocation& ran_by,
                         LaneSet suspects);

// Whether there are some, and all are lanes that ended early beside others of the set.
bool are_early(const LaneChanges& changes, LaneSet set);
LaneSet lanes_of(const LaneChanges& changes);

}  // namespace nezha
