// Direct: each rank gets every other rank's part of its chunk, adds them up, and sends the result
// to all. Two steps and as few bytes as a ring, but connections of each rank with each other one:
// for few ranks. This is a BCube of a single group.
//
// Order of summation: recursive doubling's.
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

Schedule direct(int rank, int size);

// A reduce: the results go to the root alone.
Schedule direct_reduce(int rank, int root, int size);

}  // namespace nezha
