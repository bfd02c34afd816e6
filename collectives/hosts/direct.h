// Direct: each rank gets every other rank's part of its chunk, adds them up, and sends the result
// to all. Two steps and as few bytes as a ring, but connections of each rank with each other one:
// for few ranks. This is a BCube of a single group.
//
// Order of summation: by rank, from the left: ((0+1)+2)+3. So it serves functions that do not
// commute.
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

Schedule direct(int rank, int size);

// A reduce: the results go to the root alone.
Schedule direct_reduce(int rank, int root, int size);

}  // namespace nezha
