// SPDX-License-Identifier: Apache-2.0
// What one rank does around a ring, where each rank receives from its left neighbour and sends to
// its right one only: it sends what it begins with, and passes on what comes.
//
// Allreduce: the vector is cut into n chunks. In the first n-1 legs (reduce-scatter) partial sums
// of chunks travel around the ring, each rank adding its own part, until rank r holds the final
// chunk r+1; in n-1 more legs (allgather) the final chunks travel on until all ranks have all of
// them. In its t-th leg rank r sends chunk r-t and receives chunk r-t-1 (modulo n) throughout. An
// average is divided by the rank that completes the chunk, before it is forwarded. (P. Patarasuk,
// X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.)
//
// Broadcast: the vector travels from the root to its right, to the rank that is left of the root.
// Reduce: it begins right of the root, and each rank adds its own part, at last the root. So one
// message's time does for any number of ranks, but for the first segment's way. Order of summation:
// ((root+1) + (root+2)) + ... + root, modulo n. (J. Pjesivac-Grbovic et al.: Performance analysis
// of MPI collective operations, 2007: the pipeline, or chain.)
//
// Reduce-scatter: the first half of an allreduce, by blocks. Rank r begins with block r-1, receives
// block r-t-2 in its t-th leg, and completes its own in the last one. Order of summation of block
// b: ((b+1) + (b+2)) + ... + b, modulo n.
//
// Allgather: the second half, by blocks. Rank r begins with its own block, and receives block r-t-1
// in its t-th leg.
//
// A rank begins no more than a window ahead of what has come around, which bounds what all ranks
// together hold of partial sums. In an allreduce that is its own chunk. In the others the rank that
// completes what another has begun is that one's left neighbour, and sends it tokens, a byte for
// each kTokenBytes it has completed. An allgather has no sums, and no window.
#pragma once

#include <cstddef>

#include "collectives/engine.h"
#include "collectives/partition.h"
#include "common/recycled.h"
#include "transport/message.h"

namespace nezha {

struct Leg {
  enum class Use { kPartialSum, kFinalSum, kResult, kTokens };
  Range range;             // of the vector; of tokens: how many
  Use use = Use::kResult;  // of what is received; if a sum, of it and this rank's input
  bool forwarded = false;
  bool came_around = false;  // this rank began with it
};

struct Course {
  static constexpr size_t kTokenBytes = 256 << 10;

  Range begun;                  // of the input: what this rank begins with
  RecycledVector<Leg> legs;     // what it receives, in turn; those that are forwarded come first
  size_t tokens = 0;            // that it sends
  size_t window = 0;            // bytes
  size_t piece = kLongSegment;  // bytes that it begins with at once, at least

  // Bytes per second. On slower rails a wider window only waits for longer at the end.
  static constexpr double kFast = 1e9;
  // For so many rails: each is to have enough under way, in segments that are not short.
  void widen(int rails);

  // How much more this rank begins with now, in multiples of `granule`, after `bytes_begun` of
  // which `came_around` have come around: multiples of a piece, but for the last.
  uint64_t due(uint64_t bytes_begun, uint64_t came_around, size_t granule) const;
};

// Of a slice of the operation. Nothing at all if the slice is empty.
Course course_of(const Operation& operation, const SliceBounds& bounds, int rank, int size);

}  // namespace nezha
