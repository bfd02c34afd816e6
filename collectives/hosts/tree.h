// SPDX-License-Identifier: Apache-2.0
// Binomial trees, for small broadcasts and reduces: ceil(log2(n)) messages one after the other.
//
// Counted from the root on (modulo n), rank v is the child of v less its lowest bit that is set, so
// that v has the children v+1, v+2, v+4, ... below that bit. A broadcast goes down the tree, the
// largest part of it first; a reduce goes up. (R. Thakur, R. Rabenseifner, W. Gropp: Optimization
// of Collective Communication Operations in MPICH, 2005, sections 4.3 and 4.4.)
//
// Besides, each rank tells its right neighbour at once what it calls, without which ranks that
// disagree on the root could wait for each other, or not even that.
//
// Order of summation: each rank's own, then its children's, the nearest first: counted from the
// root on, ((0+1)+(2+3))+(4+5) of 6 ranks.
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

// A rank passes on the blocks of all ranks below it.
Schedule tree_gather(int rank, int root, int size);
Schedule tree_scatter(int rank, int root, int size);

Schedule tree_broadcast(int rank, int root, int size);
Schedule tree_reduce(int rank, int root, int size);

// Up the tree of rank 0, and from there to the root: operands stay in the order of ranks.
Schedule ordered_tree_reduce(int rank, int root, int size);

}  // namespace nezha
