// SPDX-License-Identifier: Apache-2.0
// How long a rank's vectors are in each collective, and what of whose input is where in its result.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace nezha::bench {

// What the programs know of a collective. The root is rank 0.
struct CollectiveKind {
  const char* name;
  bool reduces = false;
  bool takes_block = false;  // a rank contributes a block of the vector
  bool gives_block = false;  // a rank gets a block of the vector
  bool is_exchange = false;  // a rank has one block for each rank, and gets one from each
  bool is_rooted = false;

  // Whether the vector is made of a block for each rank.
  bool has_blocks() const { return takes_block || gives_block || is_exchange; }
};

// Throws std::out_of_range if there is none of that name.
const CollectiveKind& kind_of(const std::string& collective);

// Elements.
struct Shape {
  size_t vector = 0;  // of all ranks together
  size_t input = 0;
  size_t output = 0;
  size_t overlay = 0;  // where in the longer one the shorter one is, in place
  // The result is made of these, one after the other: of that rank's input, from there on; or of
  // all ranks' inputs, reduced.
  struct Run {
    int rank = 0;  // -1: all ranks
    size_t from = 0;
    size_t count = 0;
  };
  std::vector<Run> runs;
};

// `elements`: of a block, if the vector is made of blocks, and else of the vector.
Shape shape_of(const std::string& collective, int rank, int size, size_t elements);

}  // namespace nezha::bench
