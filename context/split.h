// SPDX-License-Identifier: Apache-2.0
// Which rank goes to which new context when a context is split.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "common/unique_id.h"

namespace nezha {

// The tag of nezha's own operations. Users' operations have other tags.
constexpr uint32_t kOwnTag = std::numeric_limits<uint32_t>::max();

// What one rank tells all ranks in a split.
struct SplitVote {
  int color = 0;  // negative: in no new context
  int key = 0;
  UniqueId id;  // the new context's, if this rank is the first in it
};

// The votes of `size` ranks in the form in which they are exchanged. Each rank begins with a table
// that is zero except for its own vote, and the complete table is the sum of these over all ranks.
class SplitTable {
 public:
  explicit SplitTable(int size) : words_(static_cast<size_t>(size) * kWords) {}

  void set(int rank, const SplitVote& vote);
  SplitVote vote(int rank) const;
  int size() const { return static_cast<int>(words_.size() / kWords); }
  // Returns the ranks that have the color of `rank`, ordered by key, then by rank.
  std::vector<int> group_of(int rank) const;

  std::vector<uint64_t>& words() { return words_; }

 private:
  static constexpr size_t kWords = 3;  // the words of each rank

  std::vector<uint64_t> words_;
};

}  // namespace nezha
