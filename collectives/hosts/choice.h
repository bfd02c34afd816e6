// SPDX-License-Identifier: Apache-2.0
// Chooses the best algorithm for a size and a number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nezha/allreduce.h"

namespace nezha {

// Returns the best algorithm for an allreduce of `bytes` bytes; with `over_tree`, the best of those
// that sum over the tree of ranks.
Algorithm best_algorithm(int ranks, size_t bytes, bool over_tree);

// Returns the other algorithm that may be best for an allreduce of `bytes` bytes, or kAuto if there
// is none. Which of the two is better depends on the network, and best_algorithm() only reflects
// the networks that it was measured on. Both give the same bits and use the same peers.
Algorithm rival(int ranks, size_t bytes);

// Returns whether the messages of an operation of `bytes` bytes take the rails by turns if stripes
// carry them (Scheduler::whole). The start-up costs dominate for shorter messages, which do better
// on the fastest rail. Longer messages are cut.
bool takes_turns(size_t bytes);

// Returns the turn of the first of the `sends` messages that a rank sends in operation number
// `ordinal` of a tag. If the number of ranks is a power of two, all ranks get the same turn, so
// that a rank receives by the same rail as it sends.
uint64_t first_turn(uint64_t ordinal, uint64_t sends);

// Returns whether the algorithm sums each element over the tree of ranks (recursive_doubling.h).
// All such algorithms give the same bits.
bool sums_over_tree(Algorithm algorithm);

// Returns whether a broadcast or a reduce of `bytes` bytes uses a tree instead of the ring.
bool suits_tree(int ranks, size_t bytes);

// Returns whether an allgather of `bytes` bytes, all ranks together, uses Bruck's algorithm instead
// of the ring.
bool suits_bruck(int ranks, size_t bytes);

// Returns whether a gather of `bytes` bytes, all ranks together, uses a tree instead of direct
// messages.
bool gather_suits_tree(int ranks, size_t bytes);

// Returns the best algorithm for a reduce_scatter of `bytes` bytes; with `over_tree`, the best of
// those that sum over the tree of ranks.
Algorithm best_reduce_scatter(int ranks, size_t bytes, bool over_tree);

// Returns whether an alltoall of equal blocks, in which each rank sends `bytes` bytes, uses Bruck's
// algorithm instead of direct messages.
bool suits_bruck_alltoall(int ranks, size_t bytes);

}  // namespace nezha
