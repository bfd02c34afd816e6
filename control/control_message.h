// SPDX-License-Identifier: Apache-2.0
// The messages between the ranks and the coordinator, rank 0: lanes, readings, the steps from plan
// to plan, and how to go on without an engine. A message is a sequence of 64-bit little-endian
// words, of which the first is the kind.
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

// A message from a rank: the lanes that work there. The first such message also says that the rank
// is ready to follow plans.
struct Lanes {
  LaneSet live = 0;
};

// A message from a rank: what it measured.
struct Readings {
  RecycledVector<Reading> readings;
};

// A message to all ranks, which tells them to report for the step to this plan, and to start
// nothing until the commit.
struct Prepare {
  uint32_t plan = 0;
};

// A message from a rank: the operations that it has started by its current plan and that are not
// over.
struct Report {
  uint32_t plan = 0;
  std::vector<OperationId> operations;
};

// A message to all ranks, which tells them to go on by this plan, except for the operations in
// `keep`.
struct Commit {
  uint32_t plan = 0;
  LaneSet engines = 0;                    // lanes whose engines, if they have one, are in use
  std::vector<AllocationChange> changes;  // changes against the plan before
  std::vector<OperationId> keep;
};

// A message from a rank: the lane's engine no longer works there.
struct Lost {
  int lane = 0;
};

// A message to all ranks, which tells them to fence the tasks on that lane, and to report what is
// final. See recovery.h.
struct Freeze {
  uint32_t epoch = 0;
  int lane = 0;
};

// A message from a rank: the answer to Freeze.
struct Frozen {
  uint32_t epoch = 0;
  std::vector<FrozenPart> parts;
};

// A message to all ranks: how the operations that ran on the lane end.
struct Recover {
  uint32_t epoch = 0;
  std::vector<Repair> repairs;
};

using Message =
    std::variant<Lanes, Readings, Prepare, Report, Commit, Lost, Freeze, Frozen, Recover>;

std::string encode(const Message& message);
// Reads a message of ranks that have `lanes` lanes. Nothing in `bytes` is trusted: the result is
// consistent in itself, although it may come at the wrong time.
absl::StatusOr<Message> decode(absl::string_view bytes, int lanes);

}  // namespace nezha::control_message
