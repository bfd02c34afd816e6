// SPDX-License-Identifier: Apache-2.0
// How the ranks of a context change their plan, so that all of them run an operation by the same
// one although each starts operations in an order of its own, as threads do. No I/O.
// tests/model/plan_change.pml is the model of it.
//
// The coordinator, rank 0, takes one step at a time. It asks all ranks to prepare. Each reports the
// operations that it has started by its current plan and that are not over, and starts none from
// then on until the commit, which names what any rank has reported. Those operations keep the plan
// that they were started by, on every rank; all others run by the new one. Operations that are over
// need not be named.
//
// All of this, and what the Timer measures, is for operations that are over on a rank only when all
// ranks have started them: allreduces and barriers. A rank may be through with a broadcast or a
// reduce that another has not started: those run by a plan only if something else makes them wait.
//
// What goes from the coordinator to a rank arrives in order.
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

// A rank's part. Plans are numbered from 0 on, as they follow each other.
class PlanFollower {
 public:
  // The number of the plan that the operation, which this rank has entered, starts by; none while a
  // step is under way: it must be started again after the commit.
  std::optional<uint32_t> start(const OperationId& operation);
  // The operation is over, one way or the other.
  void finish(const OperationId& operation) {
    in_flight_.erase(operation);
    held_.erase(operation);
  }

  // A step towards the plan of that number: what this rank reports. An error if a step is under
  // way, or if the plan is not the next one.
  absl::StatusOr<std::vector<OperationId>> prepare(uint32_t plan);
  // The end of the step: `keep` are the operations of the commit, `has_entered` says of which of
  // them this rank knows. An error if there is no such step.
  absl::Status commit(uint32_t plan, const std::vector<OperationId>& keep,
                      absl::FunctionRef<bool(const OperationId&)> has_entered);

  // The step's commit will never come: on by the plan there is.
  void give_up_step() { waiting_ = false; }

  uint32_t current() const { return current_; }
  // The oldest plan that an operation may still start by.
  uint32_t oldest() const;
  bool is_waiting() const { return waiting_; }

 private:
  static constexpr size_t kMaxKept = 1 << 20;

  uint32_t current_ = 0;
  bool waiting_ = false;                 // between the report and the commit
  HashSet<OperationId> in_flight_;       // started by the current plan
  HashSet<OperationId> held_;            // entered in a step, not started yet
  HashMap<OperationId, uint32_t> keep_;  // not started here: the plan each keeps
};

// The coordinator's part, beside its own as a follower.
class PlanCoordinator {
 public:
  explicit PlanCoordinator(int ranks) : reported_(static_cast<size_t>(ranks)) {}

  // Begins the step to the next plan, whose number it returns: all ranks are to be told to prepare.
  // Only when no step is under way.
  uint32_t begin();
  bool is_stepping() const { return missing_ > 0; }
  uint32_t plan() const { return plan_; }  // that of the latest step

  // A rank's report. Once all are there, the operations of the commit, which is to be sent to all
  // ranks; the step is over then. An error if the report is none that was asked for.
  absl::StatusOr<std::optional<std::vector<OperationId>>> report(
      int rank, uint32_t plan, const std::vector<OperationId>& operations);
  // The ranks whose reports are missing, for errors.
  std::vector<int> missing() const;

 private:
  uint32_t plan_ = 0;
  size_t missing_ = 0;
  std::vector<bool> reported_;  // by rank
  HashSet<OperationId> union_;
};

}  // namespace nezha
