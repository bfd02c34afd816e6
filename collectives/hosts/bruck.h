// SPDX-License-Identifier: Apache-2.0
// Bruck's allgather takes ceil(log2(n)) steps for any number of ranks. The steps have the distances
// d = 1, 2, 4 and so on. Before each of them a rank has d blocks, its own and those that follow. It
// sends them to the rank d to its left, and gets the next d blocks from the rank d to its right. In
// the last step it gets as many as are missing. (J. Bruck et al.: Efficient algorithms for
// all-to-all communications in multiport message-passing systems, 1997.) Blocks go to their final
// places at once, so nothing is rotated in the end.
//
// If the number of ranks is a power of two, each rank exchanges with the rank whose number differs
// from its own in the bit d (recursive doubling). This takes as many steps and bytes, but less time
// for short blocks: a step has one peer instead of two, and blocks that start at a multiple of d
// never wrap around the vector's end, where they would be two messages.
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

Schedule bruck_allgather(int rank, int size);

}  // namespace nezha
