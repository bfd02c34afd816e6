// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/bruck.h"

#include <algorithm>
#include <bit>

#include "collectives/hosts/blocks_around.h"

namespace nezha {
namespace {

Schedule bruck_of_power_of_two(int rank, int power) {
  Schedule schedule{.chunks = power, .steps = {}};
  for (int distance = 1; distance < power; distance *= 2) {
    const int peer = rank ^ distance;
    const auto transfer = [&](int owner) -> Transfer {
      const int first = owner & -distance;
      return {peer, {first, first + distance}};
    };
    schedule.steps.push_back(
        {.use = Step::Use::kResult, .sends = {transfer(rank)}, .receives = {transfer(peer)}});
  }
  return schedule;
}

}  // namespace

Schedule bruck_allgather(int rank, int size) {
  if (std::has_single_bit(static_cast<unsigned>(size))) return bruck_of_power_of_two(rank, size);
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
