// SPDX-License-Identifier: Apache-2.0
// The shape of a collective: how long each rank's vectors are, and which parts of whose inputs are
// where in its result.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace nezha::bench {

// This is what the programs know of a collective. The root is rank 0.
struct CollectiveKind {
  const char* name;
  bool reduces = false;
  bool takes_block = false;  // a rank contributes a block of the vector
  bool gives_block = false;  // a rank gets a block of the vector
  bool is_exchange = false;  // a rank has one block for each rank, and gets one from each
  bool is_rooted = false;
  bool is_shift = false;  // each rank sends to the next one, and gets from the one before

  // Returns whether the vector is made of a block for each rank.
  bool has_blocks() const { return takes_block || gives_block || is_exchange; }
};

// Throws std::out_of_range if there is none of that name.
const CollectiveKind& kind_of(const std::string& collective);

// Lengths and places are in elements.
struct Shape {
  size_t vector = 0;  // all ranks' elements together
  size_t input = 0;
  size_t output = 0;
  size_t overlay = 0;  // the place in the longer one where the shorter one is, in place
  // The result is made of runs, one after the other. A run is a part of one rank's input, or of the
  // reduction of all ranks' inputs.
  struct Run {
    int rank = 0;  // -1: all ranks
    size_t from = 0;
    size_t count = 0;
  };
  std::vector<Run> runs;
};

// `elements` is the length of a block if the vector is made of blocks, and else of the vector.
Shape shape_of(const std::string& collective, int rank, int size, size_t elements);

}  // namespace nezha::bench
