// SPDX-License-Identifier: Apache-2.0
// The pairwise alltoall exchanges blocks with one peer after the other. In step k, from 1 to n-1, a
// rank sends the block for the rank k to its right, and receives from the rank k to its left. So no
// two ranks send to the same rank at the same time. (R. Thakur, R. Rabenseifner, W. Gropp:
// Optimization of Collective Communication Operations in MPICH, 2005, section 4.4.)
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

Schedule pairwise_alltoall(int rank, int size);

}  // namespace nezha
