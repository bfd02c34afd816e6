// SPDX-License-Identifier: Apache-2.0
// Folding makes an algorithm for powers of two of ranks work for any number n. With p the largest
// power of two <= n, the first n-p pairs of neighbours, 0 and 1, 2 and 3, ..., act as one rank
// each. The odd rank sends its input to the even one, which adds it to its own, takes the pair's
// part in the algorithm, and in the end sends the result back. (R. Thakur, R. Rabenseifner, W.
// Gropp: Optimization of Collective Communication Operations in MPICH, 2005, section 4.5.)
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

// `core` is the algorithm among p ranks, 0 to p-1.
Schedule folded(int rank, int size, Schedule (*core)(int rank, int power));

}  // namespace nezha
