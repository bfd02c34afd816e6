// SPDX-License-Identifier: Apache-2.0
// BCube: a reduce-scatter and an allgather, in steps. In each step the ranks of small groups
// exchange their parts, all with all. It moves as few bytes as a ring, in fewer steps.
//
// With n = g0·g1·…, rank r is a number of the digits r0, r1, … to these bases. In step k of the
// reduce-scatter, the g_k ranks that differ in digit k only cut what they have into g_k parts. The
// rank of digit j gets part j from each of the others, and adds these parts up. After the last step
// each rank has one chunk of the result. The allgather is the same backwards. (C. Guo et al.:
// BCube: A High Performance, Server-centric Network Architecture for Modular Data Centers, 2009,
// for the network that has such groups; Gloo's allreduce_bcube for the algorithm.)
//
// Order of summation: each group sums over its tree, as in recursive doubling. The groups of the
// first step are neighbours, and those of the next step are neighbouring groups, so operands stand
// in the order of ranks. The groups set the parentheses: 6 ranks in groups of 3 and 2 give
// ((0+1)+2)+((3+4)+5).
#pragma once

#include <vector>

#include "collectives/hosts/schedule.h"

namespace nezha {

// The size of each group is the largest divisor of the number of ranks left that is at most
// kBcubeBase or, without one, the least divisor. So any number of ranks works, and a prime one is a
// single group.
constexpr int kBcubeBase = 4;
Schedule bcube(int rank, int size);

// Makes groups of these sizes, whose product is the number of ranks.
Schedule bcube(int rank, const std::vector<int>& groups);

}  // namespace nezha
