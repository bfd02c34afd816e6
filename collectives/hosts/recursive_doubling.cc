// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/recursive_doubling.h"

#include "collectives/hosts/folding.h"

namespace nezha {
namespace {

Schedule recursive_doubling_of_power_of_two(int rank, int power) {
  Schedule schedule;
  for (int distance = 1; distance < power; distance *= 2) {
    const bool is_last = distance * 2 == power;
    const Transfer whole{rank ^ distance, {0, 1}};
    schedule.steps.push_back({.use = is_last ? Step::Use::kFinalSum : Step::Use::kPartialSum,
                              .sends = {whole},
                              .receives = {whole}});
  }
  return schedule;
}

}  // namespace

Schedule recursive_doubling(int rank, int size) {
  return folded(rank, size, recursive_doubling_of_power_of_two);
}

}  // namespace nezha
