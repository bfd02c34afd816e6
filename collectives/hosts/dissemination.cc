// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/dissemination.h"

namespace nezha {

Schedule dissemination(int rank, int size) {
  const Chunks nothing{0, 1};
  Schedule schedule;
  for (int distance = 1; distance < size; distance *= 2) {
    schedule.steps.push_back({.use = Step::Use::kResult,
                              .sends = {{(rank + distance) % size, nothing}},
                              .receives = {{(rank - distance + size) % size, nothing}}});
  }
  return schedule;
}

}  // namespace nezha
