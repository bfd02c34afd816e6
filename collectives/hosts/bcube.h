// SPDX-License-Identifier: Apache-2.0
// BCube: reduce-scatter and allgather in steps, in each of which the ranks of small groups exchange
// their parts all with all. Moves as few bytes as a ring, in fewer steps.
//
// With n = g0·g1·…, rank r is a number of the digits r0, r1, … to these bases. At step k of the
// reduce-scatter the g_k ranks that differ in digit k only cut what they have into g_k parts; the
// one of digit j gets part j of each other one, and adds them up. After the last step each rank has
// one chunk of the result. The allgather is the same backwards.
// (C. Guo et al.: BCube: A High Performance, Server-centric Network Architecture for Modular Data
// Centers, 2009, for the network that has such groups; Gloo's allreduce_bcube for the algorithm.)
//
// Order of summation: in each group over its tree, as recursive doubling has it. As the groups of
// the first step are neighbours, and those of the next one neighbouring groups, operands stand in
// the order of ranks; the groups set the parentheses: 6 ranks in groups of 3 and 2 give
// ((0+1)+2)+((3+4)+5).
#pragma once

#include <vector>

#include "collectives/hosts/schedule.h"

namespace nezha {

// The sizes of the groups are, each time, the largest divisor of the ranks left that is at most
// kBcubeBase; without one, their least divisor. So any number of ranks will do, and a prime one is
// a single group.
constexpr int kBcubeBase = 4;
Schedule bcube(int rank, int size);

// With groups of these sizes, whose product is the number of ranks.
Schedule bcube(int rank, const std::vector<int>& groups);

}  // namespace nezha
