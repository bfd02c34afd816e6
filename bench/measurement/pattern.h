// SPDX-License-Identifier: Apache-2.0
// Inputs whose wrong results can be told from right ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "nezha/types.h"

namespace nezha::bench {

class WrongResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The inputs of one type, operation and number of ranks, and their results.
//
// Inputs depend on rank, element and the operation's number, so that an element that is shifted,
// stale, doubled or missing shows. They are whole numbers, and so small that no result overflows or
// is rounded, in whatever order they are combined (an average is rounded once, where it is
// divided). Where the type is so narrow that not all ranks can add or multiply a number of their
// own, the ranks take turns, element by element, and the others give a 0 or a 1. No result has all
// bits set.
class Pattern {
 public:
  Pattern(DataType type, ReduceOperation operation, int ranks);

  // Fills in a rank's input.
  void fill_input(void* input, size_t elements, int rank, uint64_t number) const;

  // Checks every element of what should be a part of the reduction of all ranks' inputs, which
  // begins at element `first`. Throws WrongResult.
  void check_reduction(const void* result, size_t elements, uint64_t number,
                       size_t first = 0) const;

  // Checks every element of what should be such a part of that rank's input. Throws WrongResult.
  void check_copy(const void* copy, size_t elements, int rank, uint64_t number,
                  size_t first = 0) const;

 private:
  // Returns an element of a rank's input. Elements repeat after `period_` ones.
  double input(int rank, size_t element, uint64_t number) const;
  double reduction(size_t element, uint64_t number) const;

  DataType type_;
  ReduceOperation operation_;
  int ranks_;
  size_t turns_;  // for each element one rank in this many has a number of its own
  size_t period_;
};

}  // namespace nezha::bench
