// SPDX-License-Identifier: Apache-2.0
// The signature says in 64 bits what an operation is, except for its root. It goes with each of the
// operation's messages, so ranks that call different operations by the same tag find out instead of
// summing garbage. The signature does not contain whether the function is commutative, because that
// only decides the schedule, which it does contain.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/engine.h"
#include "transport/wire.h"

namespace nezha {

// Returns the signature, which has from the low bits on: the number of elements (32), operation
// (8), type (8), schedule (7), whether it is reproducible (1), collective (8).
constexpr uint64_t signature(ScheduleKind schedule, const Operation& op) {
  return (uint64_t{static_cast<uint8_t>(op.collective)} << 56) | (uint64_t{op.reproducible} << 55) |
         (uint64_t{static_cast<uint8_t>(schedule)} << 48) |
         (uint64_t{static_cast<uint8_t>(op.type)} << 40) |
         (uint64_t{static_cast<uint8_t>(op.operation)} << 32) |
         (is_length_known(op.collective) ? op.elements & 0xffffffff : 0);
}

// Returns a checksum of the blocks' lengths if all ranks know them, otherwise the root.
inline uint32_t root_or_blocks(const Operation& op) {
  const bool is_of_blocks = op.blocks != nullptr && tells_blocks(op.collective);
  return is_of_blocks ? op.blocks->fingerprint() : static_cast<uint32_t>(op.root);
}

// Returns the description of a slice's message of `total` bytes.
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

// Names the collective as a user would: "reduce to rank 2", or "reduce" if the root is not known.
std::string collective_name(Collective collective, std::optional<uint64_t> root);

// Returns the error if two ranks call different operations by one tag: `own`, which finds out, and
// `rank`. `ours` and `theirs` describe the two calls. Other ranks get the error, too.
absl::Status other_operation_error(int64_t own, int64_t rank, uint64_t tag, absl::string_view ours,
                                   absl::string_view theirs);
// The error names both ranks and both calls. `operation` is this rank's. If only the counts of the
// blocks differ, the error says so, and lists this rank's counts.
absl::Status mismatch_error(int own, int peer, const wire::MessageInfo& ours,
                            const wire::MessageInfo& theirs, const Operation& operation = {});
// Returns the same error for any two ranks, from the signatures of the operation of that tag. The
// roots are not known.
absl::Status disagreement_error(int own, uint32_t rank, uint32_t tag, uint64_t ours,
                                uint64_t theirs);

}  // namespace nezha
