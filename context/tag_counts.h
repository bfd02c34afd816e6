// SPDX-License-Identifier: Apache-2.0
// Counts the operations of each tag.
//
// A rank may not forget a tag: another rank may not have entered an operation of that tag yet, or
// may have entered the next one. But programs that use each tag once take tags from a counter, so
// adjacent tags mostly have the same count. So only the tags at which the count changes are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>

#include "absl/container/btree_map.h"
#include "common/hash_map.h"

namespace nezha {

class TagCounts {
 public:
  // Returns the number of operations of the tag.
  uint64_t of(uint32_t tag) const { return std::prev(counts_.upper_bound(tag))->second; }

  // Counts one more operation of the tag. Returns the new count.
  uint64_t add(uint32_t tag) {
    const uint64_t before = of(tag);
    // If there is no memory for the second entry, the first one changes no count.
    counts_.try_emplace(uint64_t{tag} + 1, before);
    const auto own = counts_.try_emplace(tag, before).first;
    const uint64_t count = ++own->second;
    const auto next = std::next(own);
    if (next->second == count) counts_.erase(next);
    merge(tag);
    return count;
  }

  // Returns the number of runs of tags whose count is kept.
  size_t runs() const { return counts_.size(); }

 private:
  using Entry = std::pair<const uint64_t, uint64_t>;

  // The tag needs no entry if the tag before it has the same count.
  void merge(uint32_t tag) {
    const auto own = counts_.find(tag);
    if (tag > 0 && std::prev(own)->second == own->second) counts_.erase(own);
  }

  // The counts of runs of tags, by the first tag of each run. There is always an entry of tag 0.
  // The keys have 64 bits, so that the last tag has a successor.
  absl::btree_map<uint64_t, uint64_t, std::less<>, ReserveAllocator<Entry>> counts_{{0, 0}};
};

}  // namespace nezha
