// SPDX-License-Identifier: Apache-2.0
// A course says what one rank does around a ring, where each rank receives only from its left
// neighbour and sends only to its right one: the rank sends what it begins with, and passes on what
// it receives.
//
// Allreduce: the vector is cut into n chunks. In the first n-1 legs (reduce-scatter) partial sums
// of chunks travel around the ring. Each rank adds its own part, until rank r holds the final chunk
// r+1. In n-1 more legs (allgather) the final chunks travel on until all ranks have all of them. In
// its t-th leg rank r sends chunk r-t and receives chunk r-t-1 (modulo n) throughout. The rank that
// completes a chunk divides an average before it forwards the chunk. (P. Patarasuk, X. Yuan:
// Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.)
//
// Broadcast: the vector travels from the root to the right, up to the rank left of the root.
// Reduce: the vector begins right of the root, and each rank adds its own part, the root last.
// Either takes the time of one message for any number of ranks, plus the way of the first segment.
// Order of summation: ((root+1) + (root+2)) + ... + root, modulo n. (J. Pjesivac-Grbovic et al.:
// Performance analysis of MPI collective operations, 2007: the pipeline, or chain.)
//
// Reduce-scatter: the first half of an allreduce, by blocks. Rank r begins with block r-1, receives
// block r-t-2 in its t-th leg, and completes its own in the last one. Order of summation of block
// b: ((b+1) + (b+2)) + ... + b, modulo n.
//
// Allgather: the second half, by blocks. Rank r begins with its own block, and receives block r-t-1
// in its t-th leg.
//
// A rank begins at most a window ahead of what has come around, which bounds the partial sums that
// all ranks hold together. In an allreduce the rank's own chunk comes around. In the other
// collectives a rank's left neighbour completes what the rank has begun, and sends it tokens: one
// byte for each kTokenBytes that it has completed. An allgather has no sums, and no window.
#pragma once

#include <cstddef>

#include "collectives/engine.h"
#include "collectives/partition.h"
#include "common/recycled.h"
#include "transport/message.h"

namespace nezha {

struct Leg {
  enum class Use { kPartialSum, kFinalSum, kResult, kTokens };
  Range range;             // of the vector; for tokens, its length is their number
  Use use = Use::kResult;  // of what is received; a sum adds this rank's input
  bool forwarded = false;
  bool came_around = false;  // this rank began with it
};

struct Course {
  static constexpr size_t kTokenBytes = 256 << 10;

  Range begun;                  // of the input: what this rank begins with
  RecycledVector<Leg> legs;     // what it receives, in order; forwarded legs come first
  size_t tokens = 0;            // number of tokens that it sends
  size_t window = 0;            // bytes
  size_t piece = kLongSegment;  // bytes that it begins at once, at least

  // The rate, in bytes per second, from which on a wider window helps. On slower rails it only
  // makes the wait at the end longer.
  static constexpr double kFast = 1e9;
  // Widens the window for so many rails, so that each has enough under way, in long segments.
  void widen(int rails);

  // Returns how many more bytes this rank begins now, after `bytes_begun`, of which `came_around`
  // have come around: whole pieces, cut to a multiple of `granule`, or all that is left.
  uint64_t due(uint64_t bytes_begun, uint64_t came_around, size_t granule) const;
};

// Returns the course for a slice of the operation. All its ranges are empty if the slice is.
Course course_of(const Operation& operation, const SliceBounds& bounds, int rank, int size);

}  // namespace nezha
