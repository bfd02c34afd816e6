// SPDX-License-Identifier: Apache-2.0
// Random 128-bit names for processes and contexts.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nezha {

// A name that nobody can guess: whoever knows it may connect to the process.
struct UniqueId {
  uint64_t high = 0;
  uint64_t low = 0;

  static UniqueId random();
  static absl::StatusOr<UniqueId> parse(absl::string_view hex);  // 32 hex digits

  std::string str() const;  // 32 hex digits

  friend bool operator==(const UniqueId&, const UniqueId&) = default;
  friend auto operator<=>(const UniqueId&, const UniqueId&) = default;

  template <typename H>
  friend H AbslHashValue(H state, const UniqueId& id) {
    return H::combine(std::move(state), id.high, id.low);
  }
};

}  // namespace nezha
