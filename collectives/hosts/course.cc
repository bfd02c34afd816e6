// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/course.h"

#include <algorithm>

namespace nezha {
namespace {

constexpr size_t kWindow = 1 << 20;  // bytes for each rank that begins
constexpr size_t kWindowOfRail = 512 << 10;
constexpr size_t kMostOfChain = 16 << 20;

Course allreduce_course(const Operation& op, const SliceBounds& bounds, int rank, int size) {
  const Partition partition(op.elements, op.element_size, size);
  Course course;
  course.begun = partition.chunk(rank, bounds);
  course.window = kWindow;
  const int legs = 2 * size - 2;
  course.legs.reserve(static_cast<size_t>(legs));
  for (int leg = 0; leg < legs; ++leg) {
    const auto use = leg < size - 2    ? Leg::Use::kPartialSum
                     : leg == size - 2 ? Leg::Use::kFinalSum
                                       : Leg::Use::kResult;
    course.legs.push_back({.range = partition.chunk((rank - leg - 1 + 2 * size) % size, bounds),
                           .use = use,
                           .forwarded = leg + 1 < legs,
                           .came_around = leg == size - 1});
  }
  return course;
}

size_t tokens_for(size_t bytes) { return (bytes + Course::kTokenBytes - 1) / Course::kTokenBytes; }

Course reduce_scatter_course(const Blocks& blocks, int rank, int size) {
  const auto block = [&](int i) { return blocks.block((i + 2 * size) % size); };
  Course course;
  course.begun = block(rank - 1);
  course.window = kWindow;
  for (int leg = 0; leg < size - 1; ++leg) {
    const bool is_last = leg == size - 2;
    course.legs.push_back({.range = block(rank - leg - 2),
                           .use = is_last ? Leg::Use::kFinalSum : Leg::Use::kPartialSum,
                           .forwarded = !is_last});
  }
  course.legs.push_back({.range = {0, tokens_for(course.begun.length)}, .use = Leg::Use::kTokens});
  course.tokens = tokens_for(block(rank).length);
  return course;
}

Course allgather_course(const Blocks& blocks, int rank, int size) {
  Course course;
  course.begun = blocks.block(rank);
  course.window = course.begun.length;
  for (int leg = 0; leg < size - 1; ++leg) {
    course.legs.push_back({.range = blocks.block((rank - leg - 1 + size) % size),
                           .use = Leg::Use::kResult,
                           .forwarded = leg < size - 2});
  }
  return course;
}

// The course of a broadcast or a reduce, which goes around the ring from `first` on.
Course chain_course(const Operation& op, const SliceBounds& bounds, int first, int rank, int size) {
  const Range all = Partition(op.elements, op.element_size, 1).chunk(0, bounds);
  const size_t tokens = tokens_for(all.length);
  const int place = (rank - first + size) % size;
  Course course;
  if (place == 0) {
    course.begun = all;
    // No other rank begins anything. The whole window may pile up at one rank, before a rank that
    // is late.
    course.window = std::min(kWindow * static_cast<size_t>(size), kMostOfChain);
    course.legs = {{.range = {0, tokens}, .use = Leg::Use::kTokens}};
    return course;
  }
  const bool is_last = place == size - 1;
  const auto sum = is_last ? Leg::Use::kFinalSum : Leg::Use::kPartialSum;
  const bool is_broadcast = op.collective == Collective::kBroadcast;
  course.legs = {
      {.range = all, .use = is_broadcast ? Leg::Use::kResult : sum, .forwarded = !is_last}};
  if (is_last) course.tokens = tokens;
  return course;
}

}  // namespace

void Course::widen(int rails) {
  window = std::max(window, static_cast<size_t>(rails) * kWindowOfRail);
  piece = std::max<size_t>(1, static_cast<size_t>(rails) / 2) * kLongSegment;
}

uint64_t Course::due(uint64_t bytes_begun, uint64_t came_around, size_t granule) const {
  const uint64_t left = begun.length - bytes_begun;
  const uint64_t room = window - (bytes_begun - came_around);
  if (left <= room) return left;
  // Only whole pieces, because they are worth spreading over rails.
  return room / piece * piece / granule * granule;
}

Course course_of(const Operation& op, const SliceBounds& bounds, int rank, int size) {
  switch (op.collective) {
    case Collective::kBroadcast:
      return chain_course(op, bounds, op.root, rank, size);
    case Collective::kReduce:
      return chain_course(op, bounds, (op.root + 1) % size, rank, size);
    case Collective::kReduceScatter:
      return reduce_scatter_course(*op.blocks, rank, size);
    case Collective::kAllgather:
      return allgather_course(*op.blocks, rank, size);
    case Collective::kAllreduce:
    // The collectives from here on have no algorithm that goes around the ring, so nobody asks for
    // their courses.
    case Collective::kBarrier:
    case Collective::kAlltoall:
    case Collective::kAlltoallv:
    case Collective::kGather:
    case Collective::kGatherv:
    case Collective::kScatter:
    case Collective::kScatterv:
      break;
  }
  return allreduce_course(op, bounds, rank, size);
}

}  // namespace nezha
