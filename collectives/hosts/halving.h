// SPDX-License-Identifier: Apache-2.0
// A reduce_scatter by recursive halving: of a power of two of ranks the lower half and the upper
// half exchange the other's blocks and add them up, then do the halves of each half the same, until
// each rank has the sum of its own block. Other numbers fold as folding.h has it: the first pairs
// of neighbours become one rank each, which owns the blocks of both, and in the end the even one
// sends the odd one's block. Order of summation: the pairs, then always a rank of the lower half
// and the one of the upper half in its place. (R. Thakur, R. Rabenseifner, W. Gropp: Optimization
// of Collective Communication Operations in MPICH, 2005, section 4.2.)
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

Schedule halving_reduce_scatter(int rank, int size);

}  // namespace nezha
