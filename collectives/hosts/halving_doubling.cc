// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/halving_doubling.h"

#include <bit>
#include <cstddef>

#include "collectives/hosts/bcube.h"
#include "collectives/hosts/folding.h"

namespace nezha {
namespace {

Schedule halving_doubling_of_power_of_two(int rank, int power) {
  const auto steps = static_cast<size_t>(std::countr_zero(static_cast<unsigned>(power)));
  return bcube(rank, std::vector<int>(steps, 2));
}

}  // namespace

Schedule halving_doubling(int rank, int size) {
  return folded(rank, size, halving_doubling_of_power_of_two);
}

}  // namespace nezha
