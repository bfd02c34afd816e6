// SPDX-License-Identifier: Apache-2.0
// An allgather in ceil(log2(n)) steps, for any number of ranks: in the step of distance d = 1, 2,
// 4,
// ... a rank that has d blocks, from its own on, sends them to the rank d to its left, and gets
// those that follow from the rank d to its right; in the last step as many as are missing.
// (J. Bruck et al.: Efficient algorithms for all-to-all communications in multiport message-passing
// systems, 1997. Blocks go where they belong at once, so that nothing is rotated in the end.)
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

Schedule bruck_allgather(int rank, int size);

}  // namespace nezha
