// SPDX-License-Identifier: Apache-2.0
// How the ranks of a context change their plan so that all of them run an operation by the same
// plan, although each rank starts operations in its own order, as threads do. This part does no
// I/O. tests/model/plan_change.pml models this protocol.
//
// The coordinator, rank 0, takes one step at a time. It asks all ranks to prepare. Each reports the
// operations that it has started by its current plan and that are not over. From then on it starts
// none until the commit, which names every operation that some rank has reported. On every rank the
// named operations keep the plan that they were started by; all others run by the new one.
// Operations that are over need not be named.
//
// This protocol and the Timer's measurements need operations that end on a rank only after all
// ranks have started them: allreduces and barriers. A rank may finish a broadcast or a reduce that
// another rank has not started, so these run by a plan only if something else makes them wait.
//
// The coordinator's messages to a rank must arrive in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/operation_id.h"
#include "common/hash_map.h"

namespace nezha {

// A rank's part in the protocol. Plans are numbered from 0 on.
class PlanFollower {
 public:
  // Returns the number of the plan by which an operation that this rank has entered starts. Returns
  // none while a step is under way; the caller must call start() again after the commit.
  std::optional<uint32_t> start(const OperationId& operation);
  // The operation has completed or failed.
  void finish(const OperationId& operation) {
    in_flight_.erase(operation);
    held_.erase(operation);
  }

  // Begins the step to the plan of this number, and returns what this rank reports. Returns an
  // error if a step is under way, or if the plan is not the next one.
  absl::StatusOr<std::vector<OperationId>> prepare(uint32_t plan);
  // Ends the step. `keep` has the operations that the commit names, and `has_entered` says whether
  // this rank has entered one of them. Returns an error if no such step is under way.
  absl::Status commit(uint32_t plan, const std::vector<OperationId>& keep,
                      absl::FunctionRef<bool(const OperationId&)> has_entered);

  // The step's commit will never come, so this rank goes on by the current plan.
  void give_up_step() { waiting_ = false; }

  uint32_t current() const { return current_; }
  // Returns the oldest plan that an operation may still start by.
  uint32_t oldest() const;
  bool is_waiting() const { return waiting_; }

 private:
  static constexpr size_t kMaxKept = 1 << 20;

  uint32_t current_ = 0;
  bool waiting_ = false;                 // between the report and the commit
  HashSet<OperationId> in_flight_;       // started by the current plan
  HashSet<OperationId> held_;            // entered during a step, not started yet
  HashMap<OperationId, uint32_t> keep_;  // plans of kept operations not yet started here
};

// The coordinator's part. Rank 0 is a follower, too.
class PlanCoordinator {
 public:
  explicit PlanCoordinator(int ranks) : reported_(static_cast<size_t>(ranks)) {}

  // Begins the step to the next plan and returns that plan's number. The caller tells all ranks to
  // prepare. May be called only when no step is under way.
  uint32_t begin();
  bool is_stepping() const { return missing_ > 0; }
  uint32_t plan() const { return plan_; }  // the plan of the latest step

  // Takes a rank's report. The last one ends the step and returns the operations of the commit,
  // which the caller sends to all ranks. Returns an error for a report that was not asked for.
  absl::StatusOr<std::optional<std::vector<OperationId>>> report(
      int rank, uint32_t plan, const std::vector<OperationId>& operations);
  // Returns the ranks whose reports are missing, for errors.
  std::vector<int> missing() const;

 private:
  uint32_t plan_ = 0;
  size_t missing_ = 0;
  std::vector<bool> reported_;  // indexed by rank
  HashSet<OperationId> union_;
};

}  // namespace nezha
