// SPDX-License-Identifier: Apache-2.0
// Direct: each rank gets every other rank's part of its chunk, adds the parts up, and sends the
// result to all. It takes two steps and as few bytes as a ring, but each rank needs connections to
// all others, so it is for few ranks. This is a BCube of a single group.
//
// Order of summation: recursive doubling's.
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

Schedule direct(int rank, int size);

// Makes a reduce: the results go to the root alone.
Schedule direct_reduce(int rank, int root, int size);

// Each of these makes one of the two steps of direct, with blocks as chunks.
Schedule direct_reduce_scatter(int rank, int size);
Schedule direct_allgather(int rank, int size);
// In a single step each rank sends each other rank its block.
Schedule direct_alltoall(int rank, int size);
// In a single step each rank sends the root its block, or the root sends each rank its block. As in
// a tree, each rank tells its right neighbour which operation it called.
Schedule direct_gather(int rank, int root, int size);
Schedule direct_scatter(int rank, int root, int size);

}  // namespace nezha
