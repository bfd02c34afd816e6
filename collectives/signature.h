// What an operation is, in 64 bits that go with each of its messages: ranks that call different
// things by the same tag find out instead of summing garbage. Whether the function is commutative
// is not in it: the algorithm tells what that decides.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/engine.h"
#include "transport/wire.h"

namespace nezha {

enum class Collective : uint8_t { kAllreduce = 1 };

// From the low bits: the number of elements (32), operation (8), type (8), algorithm (7), whether
// it is reproducible (1), collective (8).
constexpr uint64_t signature(Collective collective, Algorithm algorithm, const Operation& op) {
  return (uint64_t{static_cast<uint8_t>(collective)} << 56) | (uint64_t{op.reproducible} << 55) |
         (uint64_t{static_cast<uint8_t>(algorithm)} << 48) |
         (uint64_t{static_cast<uint8_t>(op.type)} << 40) |
         (uint64_t{static_cast<uint8_t>(op.operation)} << 32) | (op.elements & 0xffffffff);
}

// The messages of a slice: one for each pair of ranks and direction, of `total` bytes.
inline wire::MessageInfo message_info(const Group& group, const Slice& slice,
                                      const EnginePlan& plan, uint64_t total) {
  return {.context = group.context,
          .tag = (uint64_t{slice.lane} << 32) | slice.operation.tag,
          .signature = signature(Collective::kAllreduce, plan.algorithm, slice.operation),
          .total = total,
          .plan = plan.version,
          .epoch = plan.epoch};
}

// As a user would say it.
std::string algorithm_name(Algorithm algorithm);

// The error of two ranks that call different things: names the peer and both calls.
absl::Status mismatch_error(int peer, const wire::MessageInfo& ours,
                            const wire::MessageInfo& theirs);

}  // namespace nezha
