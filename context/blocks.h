// SPDX-License-Identifier: Apache-2.0
// Finds where the blocks of a collective's vector are, from what its caller has given.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "collectives/engine.h"

namespace nezha {

// One of the two vectors that a caller gives.
struct GivenVector {
  const std::byte* data = nullptr;
  DataType type = DataType::kUint8;
  size_t elements = 0;
  std::vector<size_t> counts;  // a count for each rank, if there are any
  bool has_counts = false;
  bool is_set = false;
};

// Sets all members of `operation` that say what is where. The operation has its collective and its
// root already. An error says what is wrong with the vectors.
absl::Status place_blocks(const GivenVector& input, const GivenVector& output, int rank, int size,
                          Operation& operation);

// These return how many bytes this rank's input and its output have.
size_t input_bytes(const Operation& operation, int rank);
size_t output_bytes(const Operation& operation, int rank);

}  // namespace nezha
