// SPDX-License-Identifier: Apache-2.0
// Who goes where when a context is split.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "common/unique_id.h"

namespace nezha {

// Of nezha's own operations. Those of users have others.
constexpr uint32_t kOwnTag = std::numeric_limits<uint32_t>::max();

// What one rank says in a split, as all ranks hear it.
struct SplitVote {
  int color = 0;  // negative: in no new context
  int key = 0;
  UniqueId id;  // of the new context, should this rank be its first
};

// The votes of `size` ranks in the form in which they are exchanged: the sum over the ranks of what
// each of them begins with, in which all but its own place is zero.
class SplitTable {
 public:
  explicit SplitTable(int size) : words_(static_cast<size_t>(size) * kWords) {}

  void set(int rank, const SplitVote& vote);
  SplitVote vote(int rank) const;
  int size() const { return static_cast<int>(words_.size() / kWords); }
  // The ranks that have the color of `rank`, ordered by key, then by rank.
  std::vector<int> group_of(int rank) const;

  std::vector<uint64_t>& words() { return words_; }

 private:
  static constexpr size_t kWords = 3;  // a rank

  std::vector<uint64_t> words_;
};

}  // namespace nezha
