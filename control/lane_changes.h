// SPDX-License-Identifier: Apache-2.0
// Finds the lanes whose times have changed.
#pragma once

#include <vector>

#include "control/allocation.h"
#include "control/lane_model.h"
#include "control/timer.h"

namespace nezha {

// On `lane` a byte takes `ratio` times as long as before.
struct LaneChange {
  int lane = 0;
  double ratio = 1;
};
using LaneChanges = std::vector<LaneChange>;

// Returns the lanes of `suspects` that have changed, as a window shows. Noise delays all lanes of
// an operation by far more than balancing gains. So a lane's deviation is compared with that of the
// other lanes, and with the noise that the model expects. Returns none if the set was not measured
// before.
LaneChanges lane_changes(const LaneModel& model, const Window& window, const Allocation& ran_by,
                         LaneSet suspects);

// Returns whether there are changes, and each is of a lane that has become faster in a set of
// several lanes.
bool are_early(const LaneChanges& changes, LaneSet set);

}  // namespace nezha
