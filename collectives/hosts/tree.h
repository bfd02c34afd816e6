// SPDX-License-Identifier: Apache-2.0
// Binomial trees, for small broadcasts and reduces: ceil(log2(n)) messages one after the other.
//
// Counted from the root on (modulo n), the parent of rank v is v without its lowest set bit, so v
// has the children v+1, v+2, v+4, ... below that bit. A broadcast goes down the tree, to the
// largest subtree first; a reduce goes up. (R. Thakur, R. Rabenseifner, W. Gropp: Optimization of
// Collective Communication Operations in MPICH, 2005, sections 4.3 and 4.4.)
//
// Each rank also tells its right neighbour at once which operation it called. Ranks that disagree
// on the root may have no edge of their trees in common, and could otherwise wait for each other.
//
// Order of summation: each rank's own operand, then its children's, the nearest first: counted from
// the root on, ((0+1)+(2+3))+(4+5) for 6 ranks.
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

// A rank passes on the blocks of all ranks below it.
Schedule tree_gather(int rank, int root, int size);
Schedule tree_scatter(int rank, int root, int size);

Schedule tree_broadcast(int rank, int root, int size);
Schedule tree_reduce(int rank, int root, int size);

// Goes up the tree of rank 0, and from there to the root, so that operands stay in the order of
// ranks.
Schedule ordered_tree_reduce(int rank, int root, int size);

}  // namespace nezha
