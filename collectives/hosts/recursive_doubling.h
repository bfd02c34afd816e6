// SPDX-License-Identifier: Apache-2.0
// Recursive doubling: log2(n) exchanges of the whole vector, for small ones.
//
// With a power of two of ranks, at step k rank r exchanges its partial sum with rank r XOR 2^k and
// both add the two, so that each has the sum over 2^(k+1) ranks. Other numbers of ranks fold.
// (R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH, 2005, section 4.5.)
//
// Order of summation, "the tree of ranks": neighbours fold, and the lower rank's operand comes
// first. So an element is the sum of the operands in the order of ranks, over a binary tree that is
// as balanced as possible: ((0+1)+(2+3))+((4+5)+(6+7)) for 8 ranks, ((0+1)+(2+3))+(4+5) for 6
// ranks. The order depends on the number of ranks alone, and serves functions that do not commute.
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

Schedule recursive_doubling(int rank, int size);

}  // namespace nezha
