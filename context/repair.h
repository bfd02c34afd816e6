// SPDX-License-Identifier: Apache-2.0
// The end of an operation's part whose engine is lost: see control/recovery.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/engine.h"
#include "control/recovery.h"

namespace nezha {

// A piece of a part, as a slice of an operation of its own, which the ring carries out or, if it is
// to be reduced again in another order, `schedule`.
struct RepairSlice {
  Slice slice;
  ScheduleKind schedule = ScheduleKind::kRing;
};

// `part` is the slice that the piece is of, `number` tells it from the epoch's others. An error if
// it is no part of that, or cuts an element.
absl::StatusOr<RepairSlice> repair_slice(const Repair::Piece& piece, uint32_t number,
                                         const Slice& part, ScheduleKind schedule,
                                         const Group& group);

// What a rank does for an operation that it has returned from: it gives what its engine retained,
// and passes on the rest, in memory of its own. Under Progress's lock.
class Bystander final : TaskOwner {
 public:
  // Once all is sent, or it cannot be; the bystander may not be destroyed in it.
  using OnOver = std::function<void(Bystander& self, const absl::Status& status)>;

  explicit Bystander(OnOver on_over) : on_over_(std::move(on_over)) {}

  // An error if the repair cannot be: it may end in no other way.
  absl::Status start(Engine& engine, const Group& group, uint8_t lane, uint32_t epoch,
                     const Repair& repair, uint32_t number, const std::vector<Retained>& retained);

 private:
  void on_finished(Task& task) override;
  void end_if_done();

  OnOver on_over_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::unique_ptr<Task>> tasks_;
  bool has_started_ = false;
  bool is_over_ = false;
};

}  // namespace nezha
