// SPDX-License-Identifier: Apache-2.0
// Halving-doubling: a reduce-scatter by recursive vector halving, then an allgather by recursive
// vector doubling. It moves as few bytes as a ring, in 2·log2(n) steps.
//
// With a power of two of ranks, at step k of the reduce-scatter rank r exchanges one half of what
// it has with rank r XOR 2^k and adds what it gets to the other half, until each rank has one chunk
// of the result. The allgather is the same backwards. The most bytes go to the nearest rank. This
// is a BCube of pairs. Other numbers of ranks fold. (R. Rabenseifner's algorithm, as in R. Thakur,
// R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in MPICH, 2005,
// section 4.5.)
//
// Order of summation: recursive doubling's.
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

Schedule halving_doubling(int rank, int size);

}  // namespace nezha
