// SPDX-License-Identifier: Apache-2.0
// The shape of a collective: how long a rank's vectors are, and which part of whose input is where
// in the result.
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include "cluster/worker/options.h"

namespace nezha::worker {

// Lengths and offsets, in elements.
struct Shape {
  size_t input = 0;
  size_t output = 0;
  size_t overlay = 0;  // in place: where the shorter vector begins in the longer one
  // The result consists of these parts in order. A part is from one rank's input, beginning at
  // `from`, or from the sum of all ranks' inputs.
  struct Run {
    int rank = 0;
    size_t from = 0;
    size_t count = 0;
  };
  std::vector<Run> runs;
  std::vector<size_t> sent;      // to each rank, in collectives with counts
  std::vector<size_t> received;  // from each rank
};

inline bool has_counts(Collective collective) {
  return collective == Collective::kAlltoallv || collective == Collective::kGatherv ||
         collective == Collective::kScatterv || collective == Collective::kAllgatherv ||
         collective == Collective::kReduceScatterv;
}

inline size_t sum(const std::vector<size_t>& counts, int end) {
  return std::accumulate(counts.begin(), counts.begin() + end, size_t{0});
}

// `elements` is the length of a rank's block. In collectives with counts, some blocks are a little
// longer.
inline Shape shape_of(Collective collective, int rank, int size, int root, size_t elements) {
  const auto n = static_cast<size_t>(size);
  const auto own = static_cast<size_t>(rank);
  const bool is_exchange =
      collective == Collective::kAlltoall || collective == Collective::kAlltoallv;
  const auto count = [&](size_t from, size_t to) {
    const size_t more = is_exchange ? (from + to) % 3 : to % 3;
    return has_counts(collective) && elements > 0 ? elements + more : elements;
  };
  Shape shape;
  for (size_t r = 0; r < n; ++r) {
    shape.sent.push_back(count(own, r));
    shape.received.push_back(count(r, is_exchange ? own : r));
  }
  const size_t all = sum(shape.sent, size);
  const size_t block = shape.sent[own];
  const size_t before = sum(shape.sent, rank);
  switch (collective) {
    case Collective::kAllgather:
    case Collective::kAllgatherv:
    case Collective::kGather:
    case Collective::kGatherv: {
      const bool is_rooted =
          collective == Collective::kGather || collective == Collective::kGatherv;
      shape.input = block;
      if (is_rooted && rank != root) return shape;
      shape.output = all;
      shape.overlay = before;
      for (int r = 0; r < size; ++r)
        shape.runs.push_back({r, 0, shape.sent[static_cast<size_t>(r)]});
      return shape;
    }
    case Collective::kScatter:
    case Collective::kScatterv:
      shape.input = rank == root ? all : 0;
      shape.output = block;
      shape.overlay = rank == root ? before : 0;
      shape.runs = {{root, before, block}};
      return shape;
    case Collective::kReduceScatter:
    case Collective::kReduceScatterv:
      shape.input = all;
      shape.output = block;
      shape.overlay = before;
      shape.runs = {{-1, before, block}};
      return shape;
    case Collective::kAlltoall:
    case Collective::kAlltoallv:
      shape.input = all;
      shape.output = sum(shape.received, size);
      for (int r = 0; r < size; ++r) {
        size_t from = 0;
        for (size_t to = 0; to < own; ++to) from += count(static_cast<size_t>(r), to);
        shape.runs.push_back({r, from, shape.received[static_cast<size_t>(r)]});
      }
      return shape;
    case Collective::kSendRecv:
      shape.input = shape.output = elements;
      shape.runs = {{(rank + size - 1) % size, 0, elements}};
      return shape;
    default:
      shape.input = shape.output = elements;
      shape.runs = {{collective == Collective::kBroadcast ? root : -1, 0, elements}};
      return shape;
  }
}

}  // namespace nezha::worker
