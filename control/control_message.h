// SPDX-License-Identifier: Apache-2.0
// What ranks tell the coordinator, rank 0, and it tells them: lanes, readings, the steps from plan
// to plan, and how to go on without an engine. As 64-bit little-endian words, the first of which is
// the kind.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "control/allocation.h"
#include "control/load_balancer.h"
#include "control/plan_agreement.h"
#include "control/recovery.h"
#include "control/timer.h"

namespace nezha::control_message {

// From a rank: the lanes that work there. The first tells that it is ready to follow.
struct Lanes {
  LaneSet live = 0;
};

// From a rank: what it measured.
struct Readings {
  RecycledVector<Reading> readings;
};

// To all: report for the step to this plan, and start nothing until the commit.
struct Prepare {
  uint32_t plan = 0;
};

// From a rank: what it has started by its plan that is not over.
struct Report {
  uint32_t plan = 0;
  std::vector<OperationId> operations;
};

// To all: go on by this plan, but for those operations.
struct Commit {
  uint32_t plan = 0;
  LaneSet engines = 0;                    // the lanes that their engines carry, if they have one
  std::vector<AllocationChange> changes;  // from the plan before
  std::vector<OperationId> keep;
};

// From a rank: the lane's engine can carry nothing there any more.
struct Lost {
  int lane = 0;
};

// To all: fence what runs on that lane, and say what is final. See recovery.h.
struct Freeze {
  uint32_t epoch = 0;
  int lane = 0;
};

// From a rank: that is done.
struct Frozen {
  uint32_t epoch = 0;
  std::vector<FrozenPart> parts;
};

// To all: how what ran on the lane ends.
struct Recover {
  uint32_t epoch = 0;
  std::vector<Repair> repairs;
};

using Message =
    std::variant<Lanes, Readings, Prepare, Report, Commit, Lost, Freeze, Frozen, Recover>;

std::string encode(const Message& message);
// A message among ranks of so many lanes. Nothing of it is trusted: what comes out makes sense by
// itself, though it may be out of place.
absl::StatusOr<Message> decode(absl::string_view bytes, int lanes);

}  // namespace nezha::control_message
