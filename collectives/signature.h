// SPDX-License-Identifier: Apache-2.0
// What an operation is, but for its root, in 64 bits that go with each of its messages: ranks that
// call different things by the same tag find out instead of summing garbage. Whether the function
// is commutative is not in it: the algorithm tells what that decides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/engine.h"
#include "transport/wire.h"

namespace nezha {

// From the low bits: the number of elements (32), operation (8), type (8), schedule (7), whether
// it is reproducible (1), collective (8).
constexpr uint64_t signature(ScheduleKind schedule, const Operation& op) {
  return (uint64_t{static_cast<uint8_t>(op.collective)} << 56) | (uint64_t{op.reproducible} << 55) |
         (uint64_t{static_cast<uint8_t>(schedule)} << 48) |
         (uint64_t{static_cast<uint8_t>(op.type)} << 40) |
         (uint64_t{static_cast<uint8_t>(op.operation)} << 32) |
         (is_length_known(op.collective) ? op.elements & 0xffffffff : 0);
}

// The root of an operation that has one; which blocks it has, where all ranks know these.
inline uint32_t root_or_blocks(const Operation& op) {
  const bool is_of_blocks = op.blocks != nullptr && tells_blocks(op.collective);
  return is_of_blocks ? op.blocks->fingerprint() : static_cast<uint32_t>(op.root);
}

// The messages of a slice: one for each pair of ranks and direction, of `total` bytes.
inline wire::MessageInfo message_info(const Group& group, const Slice& slice,
                                      const EnginePlan& plan, uint64_t total) {
  return {.context = group.context,
          .tag = (uint64_t{slice.piece} << 40) | (uint64_t{slice.lane} << 32) | slice.operation.tag,
          .signature = signature(plan.schedule, slice.operation),
          .total = total,
          .plan = plan.version,
          .epoch = plan.epoch,
          .root = root_or_blocks(slice.operation)};
}

// As a user would say it: "reduce to rank 2", or "reduce" if the root is not known.
std::string collective_name(Collective collective, std::optional<uint64_t> root);

// The error of two ranks that call different things by one tag, which are told in words: `own`,
// which finds out, and `rank`. Other ranks get it, too.
absl::Status other_operation_error(int64_t own, int64_t rank, uint64_t tag, absl::string_view ours,
                                   absl::string_view theirs);
// Names both ranks and both calls. `operation` is this rank's; if no more than the counts of its
// blocks differ, the error says so, and has them.
absl::Status mismatch_error(int own, int peer, const wire::MessageInfo& ours,
                            const wire::MessageInfo& theirs, const Operation& operation = {});
// Likewise of any two ranks, whose roots are not known, by the signatures of the operation of that
// tag.
absl::Status disagreement_error(int own, uint32_t rank, uint32_t tag, uint64_t ours,
                                uint64_t theirs);

}  // namespace nezha
