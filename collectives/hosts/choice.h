// SPDX-License-Identifier: Apache-2.0
// Which algorithm serves which size and number of ranks best.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nezha/allreduce.h"

namespace nezha {

// For an allreduce of so many bytes. `over_tree`: of those that sum over the tree of ranks.
Algorithm best_algorithm(int ranks, size_t bytes, bool over_tree);

// The other algorithm that may serve an allreduce of so many bytes best: which of two does depends
// on the network, where best_algorithm() knows those only that it was measured on. Whichever serves
// it, the bits are the same, and so are the peers. kAuto: there is none.
Algorithm rival(int ranks, size_t bytes);

// Whether the messages of an operation of so many bytes take the rails by turns where stripes carry
// them (Scheduler::whole). Shorter ones are all start-up, and better off on the fastest; longer
// ones are cut.
bool takes_turns(size_t bytes);

// The turn of the first of the `sends` messages that a rank sends in its operation number `ordinal`
// of a tag. Among a power of two of ranks it is the same on all, so that what a rank sends by a
// rail it receives by it, too.
uint64_t first_turn(uint64_t ordinal, uint64_t sends);

// Whether each element is summed over the tree of ranks (recursive_doubling.h), so that it has the
// same bits whichever of these algorithms sums it.
bool sums_over_tree(Algorithm algorithm);

// Whether a broadcast or a reduce of so many bytes goes over a tree, and not along the ring.
bool suits_tree(int ranks, size_t bytes);

// Whether an allgather of so many bytes, of all ranks together, goes by Bruck's algorithm, and not
// along the ring.
bool suits_bruck(int ranks, size_t bytes);

// Whether a gather of so many bytes, of all ranks together, goes over a tree, and not directly.
bool gather_suits_tree(int ranks, size_t bytes);

// For a reduce_scatter of so many bytes. `over_tree`: of those that sum over the tree of ranks.
Algorithm best_reduce_scatter(int ranks, size_t bytes, bool over_tree);

// Returns whether an alltoall of equal blocks, in which each rank sends so many bytes, goes by
// Bruck's algorithm, and not directly.
bool suits_bruck_alltoall(int ranks, size_t bytes);

}  // namespace nezha
