// SPDX-License-Identifier: Apache-2.0
// A schedule says what one rank does in a collective. In each of its steps the rank exchanges parts
// of the vector with other ranks. The algorithms make schedules, and ScheduledTask carries them
// out.
#pragma once

#include <vector>

namespace nezha {

// Chunks [begin, end) of the vector. There may be none.
struct Chunks {
  int begin = 0;
  int end = 0;
};

struct Transfer {
  int peer = 0;
  Chunks chunks;
};

// A step sends nothing before the step before it is complete.
struct Step {
  // What becomes of the received data.
  enum class Use {
    kPartialSum,  // added to what this rank has of these chunks, over the tree of ranks
    kFinalSum,    // the same; the sum (divided, for an average) is the result
    kResult,      // already the result
    // Empty messages, sent as soon as the operation begins and ahead of all others, which tell the
    // peer that this rank has entered and which operation it called. Only the last step may be one.
    kAgreement,
  };
  Use use = Use::kResult;
  std::vector<Transfer> sends;     // from what this rank has when the step begins
  std::vector<Transfer> receives;  // in rank order; all of the same chunks if summed
};

struct Schedule {
  // The number of parts that the vector is cut into: equal ones, or its blocks. It is the same on
  // all ranks.
  int chunks = 1;
  std::vector<Step> steps;
  // Whether the input and the output are two separate vectors: each step sends from the input, and
  // what it receives is never sent on.
  bool is_exchange = false;
};

// Returns the step by which a rank tells its right neighbour at once which operation it called.
// Without it, ranks that disagree on the root could wait for each other.
inline Step agreement(int rank, int size) {
  constexpr Chunks kNothing{0, 0};
  return {.use = Step::Use::kAgreement,
          .sends = {{(rank + 1) % size, kNothing}},
          .receives = {{(rank - 1 + size) % size, kNothing}}};
}

}  // namespace nezha
