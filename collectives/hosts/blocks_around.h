// SPDX-License-Identifier: Apache-2.0
// Blocks that follow each other around the ring of ranks.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/hosts/schedule.h"

namespace nezha {

// With `peer`: `count` blocks from `first` on. Those behind the last rank's are a transfer of their
// own, since they lie at the vector's begin.
inline std::vector<Transfer> blocks_around(int peer, int first, int count, int size) {
  const int end = std::min(first + count, size);
  std::vector<Transfer> transfers{{peer, {first, end}}};
  if (first + count > size) transfers.push_back({peer, {0, first + count - size}});
  return transfers;
}

}  // namespace nezha
