// SPDX-License-Identifier: Apache-2.0
#include "context/repair.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace nezha {
namespace {

// Broadcasts a piece as plain bytes, so that a rank that no longer knows their type can take part.
Slice broadcast(const Repair::Piece& piece, int rank, std::byte* memory) {
  const bool is_source = piece.source == rank;
  Slice slice;
  Operation& op = slice.operation;
  op.collective = Collective::kBroadcast;
  op.root = piece.source;
  op.input = is_source ? memory : nullptr;
  op.output = is_source ? nullptr : memory;
  op.elements = piece.range.length;
  op.element_size = 1;
  op.type = DataType::kUint8;
  return slice;
}

absl::Status no_such_piece(const Repair::Piece& piece) {
  return absl::InvalidArgumentError(
      absl::StrCat("it asks this rank to repair [", piece.range.offset, ", +", piece.range.length,
                   ") from rank ", piece.source, ", which is impossible"));
}

}  // namespace

absl::StatusOr<RepairSlice> repair_slice(const Repair::Piece& piece, uint32_t number,
                                         const Slice& part, ScheduleKind schedule,
                                         const Group& group) {
  const Operation& whole = part.operation;
  const auto [offset, length] = piece.range;
  const ChunkMap ranges = ranges_of(whole, part.bounds, schedule, group.size);
  if (!difference({piece.range}, ranges).empty() || !whole.is_whole(offset, length) ||
      piece.source >= group.size) {
    return no_such_piece(piece);
  }
  RepairSlice repair;
  if (piece.source != Repair::kNobody) {
    repair.slice = broadcast(piece, group.rank, whole.output + offset);
    repair.schedule = ScheduleKind::kChain;
  } else {
    Operation& op = repair.slice.operation = whole;
    if (op.input != nullptr) op.input += offset;
    op.output += offset;
    op.elements = length / op.element_size;
    const bool keeps_order = op.reproducible || !op.commutative;
    const bool is_kept = keeps_order || op.collective == Collective::kBarrier;
    repair.schedule = is_kept ? schedule : around_ring(op.collective);
  }
  repair.slice.operation.tag = whole.tag;
  repair.slice.lane = part.lane;
  repair.slice.rails = group.rails;
  repair.slice.piece = number;
  return repair;
}

absl::Status Bystander::start(Engine& engine, const Group& group, uint8_t lane, uint32_t epoch,
                              const Repair& repair, uint32_t number,
                              const std::vector<Retained>& retained) {
  for (const Repair::Piece& piece : repair.pieces) {
    const auto [offset, length] = piece.range;
    if (piece.source < 0 || piece.source >= group.size) return no_such_piece(piece);
    std::vector<std::byte>& memory = memory_.emplace_back(length);
    if (piece.source == group.rank) {
      ChunkMap lacking = {piece.range};
      for (const Retained& kept : retained) {
        const bool is_its = kept.tag == repair.operation.tag &&
                            kept.ordinal == repair.operation.ordinal && kept.lane == lane;
        if (!is_its) continue;
        for (const Range& both : intersection({piece.range}, {{kept.offset, kept.bytes.size()}})) {
          std::memcpy(&memory[both.offset - offset], &kept.bytes[both.offset - kept.offset],
                      both.length);
          lacking = difference(lacking, {both});
        }
      }
      if (!lacking.empty()) return no_such_piece(piece);
    }
    Slice slice = broadcast(piece, group.rank, memory.data());
    slice.operation.tag = repair.operation.tag;
    slice.lane = lane;
    slice.rails = group.rails;
    slice.piece = number++;
    auto task = engine.start(group, slice, {ScheduleKind::kChain, 0, epoch}, *this);
    if (!task.ok()) return task.status();
    tasks_.push_back(*std::move(task));
    if (is_over_) return absl::OkStatus();
  }
  has_started_ = true;
  end_if_done();
  return absl::OkStatus();
}

void Bystander::on_finished(Task& task) {
  if (is_over_) return;
  if (task.poll() == Task::State::kDone) return end_if_done();
  is_over_ = true;
  on_over_(*this, task.status());
}

void Bystander::end_if_done() {
  const bool is_done = std::all_of(tasks_.begin(), tasks_.end(), [](const auto& task) {
    return task->poll() == Task::State::kDone;
  });
  if (!has_started_ || is_over_ || !is_done) return;
  is_over_ = true;
  on_over_(*this, absl::OkStatus());
}

}  // namespace nezha
