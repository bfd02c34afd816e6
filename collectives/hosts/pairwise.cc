// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/pairwise.h"

namespace nezha {

Schedule pairwise_alltoall(int rank, int size) {
  Schedule schedule{.chunks = size, .steps = {}, .is_exchange = true};
  for (int k = 1; k < size; ++k) {
    const int right = (rank + k) % size;
    const int left = (rank - k + size) % size;
    schedule.steps.push_back({.use = Step::Use::kResult,
                              .sends = {{right, {right, right + 1}}},
                              .receives = {{left, {left, left + 1}}}});
  }
  return schedule;
}

}  // namespace nezha
