// SPDX-License-Identifier: Apache-2.0
// Repairs one operation's part on an engine that is lost: see control/recovery.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/engine.h"
#include "control/recovery.h"

namespace nezha {

// A piece of a part, as a slice of an operation of its own, and the schedule that carries it out. A
// rank's broadcast of the piece goes by a chain. A piece that is reduced again keeps the part's
// schedule if the order of the reduction matters or the operation is a barrier, and otherwise goes
// around the ring.
struct RepairSlice {
  Slice slice;
  ScheduleKind schedule = ScheduleKind::kRing;
};

// Makes the slice of a piece of `part`. `number` tells the piece from the epoch's other pieces.
// Returns an error if the piece is not inside `part`, cuts an element, or has a source that is not
// in the group.
absl::StatusOr<RepairSlice> repair_slice(const Repair::Piece& piece, uint32_t number,
                                         const Slice& part, ScheduleKind schedule,
                                         const Group& group);

// A rank's part in the repair of an operation from which it has returned: it sends what its engine
// retained, and passes on the other pieces, in memory of its own. All methods are called under
// Progress's lock.
class Bystander final : TaskOwner {
 public:
  // Is called once everything is sent, or cannot be. It must not destroy the bystander.
  using OnOver = std::function<void(Bystander& self, const absl::Status& status)>;

  explicit Bystander(OnOver on_over) : on_over_(std::move(on_over)) {}

  // Returns an error if the repair is impossible, which means that the context cannot go on.
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
