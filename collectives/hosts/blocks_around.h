// SPDX-License-Identifier: Apache-2.0
// Transfers of blocks that follow each other around the ring of ranks.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/hosts/schedule.h"

namespace nezha {

// Returns the transfers with `peer` of `count` blocks from `first` on. Blocks after the last rank's
// continue at the beginning of the vector, and so are a transfer of their own.
inline std::vector<Transfer> blocks_around(int peer, int first, int count, int size) {
  const int end = std::min(first + count, size);
  std::vector<Transfer> transfers{{peer, {first, end}}};
  if (first + count > size) transfers.push_back({peer, {0, first + count - size}});
  return transfers;
}

}  // namespace nezha
