// SPDX-License-Identifier: Apache-2.0
#include "context/split.h"

#include <algorithm>

namespace nezha {

void SplitTable::set(int rank, const SplitVote& vote) {
  uint64_t* words = &words_[static_cast<size_t>(rank) * kWords];
  words[0] = uint64_t{static_cast<uint32_t>(vote.color)} << 32 | static_cast<uint32_t>(vote.key);
  words[1] = vote.id.high;
  words[2] = vote.id.low;
}

SplitVote SplitTable::vote(int rank) const {
  const uint64_t* words = &words_[static_cast<size_t>(rank) * kWords];
  return {.color = static_cast<int>(words[0] >> 32),
          .key = static_cast<int>(words[0] & 0xffffffff),
          .id = {words[1], words[2]}};
}

std::vector<int> SplitTable::group_of(int rank) const {
  std::vector<int> group;
  for (int other = 0; other < size(); ++other) {
    if (vote(other).color == vote(rank).color) group.push_back(other);
  }
  std::stable_sort(group.begin(), group.end(),
                   [&](int a, int b) { return vote(a).key < vote(b).key; });
  return group;
}

}  // namespace nezha
