// SPDX-License-Identifier: Apache-2.0
// Recursive halving is a reduce_scatter. If the number of ranks is a power of two, the lower half
// and the upper half exchange the other half's blocks and add them up. Then each half does the
// same, until each rank has the sum of its own block. Other numbers of ranks fold as in folding.h:
// the first pairs of neighbours become one rank each, which owns the blocks of both. In the end the
// even rank of a pair sends the odd one its block.
//
// The order of summation: the pairs come first. Then, in each step, the operand of the lower half's
// rank precedes that of the rank in the same place of the upper half. (R. Thakur, R. Rabenseifner,
// W. Gropp: Optimization of Collective Communication Operations in MPICH, 2005, section 4.2.)
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

Schedule halving_reduce_scatter(int rank, int size);

}  // namespace nezha
