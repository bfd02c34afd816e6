// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/engine/flare_task.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/reduction.h"
#include "collectives/signature.h"

namespace nezha::flare {
namespace {

// The longest vector that a switch adds up. Nobody else cuts longer ones, and they take minutes.
constexpr size_t kMostBytes = size_t{1} << 32;

// Operations that differ between ranks get different numbers, but for a chance of one in 2^32. The
// switch then says that the ranks disagree instead of adding the operations up.
uint32_t name_of(const Slice& slice, const EnginePlan& plan) {
  uint64_t hash = 0;
  const auto mix = [&hash](uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  };
  mix(slice.operation.tag);
  mix(slice.operation.ordinal);
  mix(signature(plan.schedule, slice.operation));
  mix(static_cast<uint64_t>(slice.operation.root));
  mix(slice.bounds.begin);
  mix(slice.bounds.end);
  mix(slice.lane);
  mix(plan.version);
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

// The contribution of a rank that has no input.
constexpr std::array<std::byte, kMaxPayload> kZeros{};

bool adds_up(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduce;
}

// Returns the operation as a user would describe it.
std::string said(const Operation& op) {
  return absl::StrCat(collective_name(op.collective, static_cast<uint64_t>(op.root)), " of ",
                      op.elements, " elements");
}

}  // namespace

absl::Status FlareTask::supports(const Operation& operation) {
  const auto cannot = [](absl::string_view what) {
    return absl::UnimplementedError(absl::StrCat(what, " is for the hosts alone"));
  };
  if (traits(operation.collective).has_blocks) return cannot(traits(operation.collective).name);
  if (operation.collective == Collective::kBarrier) return absl::OkStatus();
  if (adds_up(operation.collective)) {
    if (operation.operation == ReduceOperation::kCustom) return cannot("a custom operation");
    if (!operation.commutative) return cannot("an operation that is not commutative");
    if (operation.reproducible) return cannot("a reproducible sum");
    if (reduction(operation.type, operation.operation) == nullptr)
      return cannot("this type of elements");
  }
  if (operation.bytes() == 0) return cannot("an operation without elements");
  if (operation.bytes() > kMostBytes) return cannot("a vector of this length");
  return absl::OkStatus();
}

FlareTask::FlareTask(FlareTaskOwner& engine, const Group& group, const Slice& slice,
                     const EnginePlan& plan, size_t payload, TaskOwner& owner)
    : Task(owner),
      engine_(&engine),
      rank_(group.rank),
      ranks_(group.size),
      slice_(slice),
      plan_(plan),
      name_(name_of(slice, plan)),
      ranges_(ranges_of(slice.operation, slice.bounds, plan.schedule, group.size)),
      per_block_(payload / slice.operation.element_size * slice.operation.element_size) {
  for (const Range& range : ranges_) {
    first_.push_back(blocks_);
    blocks_ += static_cast<uint32_t>((range.length + per_block_ - 1) / per_block_);
  }
  taken_.resize(blocks_);
}

void FlareTask::run(SwitchSession& session, int stream) {
  session_ = &session;
  stream_ = stream;
  session.add(stream, blocks_, this);
}

Range FlareTask::range(uint32_t block) const {
  const auto next = std::upper_bound(first_.begin(), first_.end(), block);
  const auto index = static_cast<size_t>(next - first_.begin()) - 1;
  const Range& range = ranges_[index];
  const size_t offset = size_t{block - first_[index]} * per_block_;
  return {range.offset + offset, std::min(per_block_, range.length - offset)};
}

// ---- Blocks ------------------------------------------------------------------------------------

BlockId FlareTask::id() const {
  const Operation& op = slice_.operation;
  if (!adds_up(op.collective)) {
    return {.seq = 0,
            .operation_id = name_,
            .type = DataType::kUint8,
            .operation = ReduceOperation::kMax};
  }
  const bool is_average = op.operation == ReduceOperation::kAverage;
  return {.seq = 0,
          .operation_id = name_,
          .type = op.type,
          .operation = is_average ? ReduceOperation::kSum : op.operation};
}

absl::Span<const std::byte> FlareTask::contribution(uint32_t block) {
  const Range part = range(block);
  if (slice_.operation.input == nullptr) return {kZeros.data(), part.length};
  return {slice_.operation.input + part.offset, part.length};
}

bool FlareTask::take(uint32_t block, absl::Span<const std::byte> result) {
  const Range part = range(block);
  if (result.size() != part.length) return false;
  const Operation& op = slice_.operation;
  if (adds_up(op.collective) && op.operation == ReduceOperation::kAverage) {
    divide(op.type, op.output + part.offset, result.data(), part.length / op.element_size, ranks_);
  } else {
    std::memcpy(op.output + part.offset, result.data(), part.length);
  }
  taken_[block] = true;
  ++taken_count_;
  missing_.clear();
  return true;
}

void FlareTask::retain(uint32_t block, Retained& copy) const {
  const Range part = range(block);
  const Operation& op = slice_.operation;
  copy.tag = op.tag;
  copy.ordinal = op.ordinal;
  copy.lane = slice_.lane;
  copy.offset = part.offset;
  copy.bytes.assign(op.output + part.offset, op.output + part.offset + part.length);
}

void FlareTask::on_complete() {
  session_ = nullptr;
  if (engine_ != nullptr) std::exchange(engine_, nullptr)->on_task_done(*this);
  finish(State::kDone);
}

void FlareTask::on_pending(const std::vector<RankRange>& missing) {
  missing_ = missing;
  engine_->on_task_pending(*this, missing);
}

void FlareTask::on_mismatch(const Frame& frame) {
  const Mismatch mismatch = decode_mismatch(frame);
  const bool is_first_ours = frame.header.block.operation_id == name_;
  const RankRange& theirs = is_first_ours ? mismatch.other_ranks : mismatch.ranks;
  const BlockId& block = is_first_ours ? mismatch.other : frame.header.block;
  fail(other_operation_error(rank_, theirs.first, slice_.operation.tag, said(slice_.operation),
                             operation_of(block.operation_id)));
}

void FlareTask::on_misfit() {
  fail(absl::FailedPreconditionError(
      absl::StrCat("ranks have sent the switch parts of different operations by the tag ",
                   slice_.operation.tag, "; this rank has called ", said(slice_.operation),
                   "; all ranks must call the same operations of one tag in the same order")));
}

// A name cannot be decoded. But mostly the root or the collective differs, and there are few enough
// of those to try all.
std::string FlareTask::operation_of(uint32_t name) const {
  Slice slice = slice_;
  for (const Collective collective : {slice_.operation.collective, Collective::kAllreduce,
                                      Collective::kReduce, Collective::kBroadcast}) {
    slice.operation.collective = collective;
    for (slice.operation.root = 0; slice.operation.root < ranks_; ++slice.operation.root) {
      if (name_of(slice, plan_) == name) return said(slice.operation);
    }
  }
  return "something of another size, type or kind";
}

// ---- Task --------------------------------------------------------------------------------------

void FlareTask::detach() {
  if (session_ != nullptr) std::exchange(session_, nullptr)->forget(this);
  if (engine_ != nullptr) std::exchange(engine_, nullptr)->on_detached(*this);
}

ChunkMap FlareTask::final_chunks() const {
  ChunkMap final;
  for (uint32_t block = 0; block < blocks_; ++block) {
    if (taken_[block]) add(final, range(block));
  }
  return final;
}

std::string FlareTask::describe() const {
  if (stream_ == kNoStream) return engine_ == nullptr ? "" : engine_->why_waiting();
  std::string text = absl::StrCat("has ", taken_count_, " of ", blocks_, " blocks from the switch");
  if (missing_.empty()) return text;
  const auto append = [](std::string* out, const RankRange& ranks) {
    absl::StrAppend(out, ranks.first);
    if (ranks.count > 1) absl::StrAppend(out, "-", ranks.first + ranks.count - 1);
  };
  return absl::StrCat(text, ", which waits for rank ", absl::StrJoin(missing_, ", ", append));
}

}  // namespace nezha::flare
