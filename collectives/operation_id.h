// SPDX-License-Identifier: Apache-2.0
// The name of an operation within its context.
#pragma once

#include <compare>
#include <cstdint>
#include <utility>

namespace nezha {

// `ordinal` counts the operations of the tag, from 1. The name is the same on every rank.
struct OperationId {
  uint32_t tag = 0;
  uint64_t ordinal = 0;

  friend auto operator<=>(const OperationId&, const OperationId&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const OperationId& id) {
    return H::combine(std::move(hash), id.tag, id.ordinal);
  }
};

}  // namespace nezha
