// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/bruck.h"

#include <algorithm>

#include "collectives/hosts/blocks_around.h"

namespace nezha {

Schedule bruck_allgather(int rank, int size) {
  Schedule schedule{.chunks = size, .steps = {}};
  for (int distance = 1; distance < size; distance *= 2) {
    const int count = std::min(distance, size - distance);
    const int left = (rank - distance + size) % size;
    const int right = (rank + distance) % size;
    schedule.steps.push_back({.use = Step::Use::kResult,
                              .sends = blocks_around(left, rank, count, size),
                              .receives = blocks_around(right, right, count, size)});
  }
  return schedule;
}

}  // namespace nezha
