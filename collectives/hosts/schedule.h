// SPDX-License-Identifier: Apache-2.0
// What one rank does in a collective: steps, in each of which it exchanges parts of the vector with
// other ranks. The algorithms make schedules, and ScheduledTask carries them out.
#pragma once

#include <vector>

namespace nezha {

// Chunks [begin, end) of the vector. May be empty.
struct Chunks {
  int begin = 0;
  int end = 0;
};

struct Transfer {
  int peer = 0;
  Chunks chunks;
};

// Nothing of a step is sent before the one before it is complete.
struct Step {
  // What becomes of what is received.
  enum class Use {
    kPartialSum,  // with what this rank has of these chunks it is summed, over the tree of ranks
    kFinalSum,    // so, too; and the sum is the result, an average once it is divided
    kResult,      // it is the result already
    // Nothing is sent, as soon as the operation begins and ahead of all else, and nothing received:
    // that the peer has come, and calls the same. Only the last step may be one.
    kAgreement,
  };
  Use use = Use::kResult;
  std::vector<Transfer> sends;     // of what this rank has when the step begins
  std::vector<Transfer> receives;  // by rank; of what is summed, all the same chunks
};

struct Schedule {
  // The parts that the vector is cut into: equal ones, or its blocks. The same on all ranks.
  int chunks = 1;
  std::vector<Step> steps;
  // Of two vectors, which lie apart: each step sends of the input, and what it receives is never
  // sent on.
  bool is_exchange = false;
};

// The step by which a rank tells its right neighbour at once what it calls: else ranks that
// disagree on the root could wait for each other.
inline Step agreement(int rank, int size) {
  constexpr Chunks kNothing{0, 0};
  return {.use = Step::Use::kAgreement,
          .sends = {{(rank + 1) % size, kNothing}},
          .receives = {{(rank - 1 + size) % size, kNothing}}};
}

}  // namespace nezha
