// Makes an algorithm for powers of two of ranks one for any number: with the largest power of two
// p <= n, rank p+i first sends its input to rank i, which adds it to its own, and in the end gets
// the result back from there.
// (R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH, 2005, section 4.5, with other pairs.)
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

// `core` is the algorithm among ranks 0 to p-1.
Schedule folded(int rank, int size, Schedule (*core)(int rank, int power));

}  // namespace nezha
