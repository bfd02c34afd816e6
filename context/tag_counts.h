// SPDX-License-Identifier: Apache-2.0
// How many operations there were of each tag.
//
// No rank may forget a tag: another rank may not have entered an operation of that tag yet, or may
// have entered the next one. But programs that use each tag once take them from a counter, so that
// tags beside each other have the same count. What is kept is where the count changes from one tag
// to the next.
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
  // How many there were.
  uint64_t of(uint32_t tag) const { return std::prev(counts_.upper_bound(tag))->second; }

  // There is one more of the tag. Returns how many there are now.
  uint64_t add(uint32_t tag) {
    const uint64_t before = of(tag);
    // Should there be no memory for the second of these, the first one changes no count.
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

  // By the first of the tags that have this count. There is always an entry of tag 0. The tags are
  // of 64 bits, so that the last one has a next one.
  absl::btree_map<uint64_t, uint64_t, std::less<>, ReserveAllocator<Entry>> counts_{{0, 0}};
};

}  // namespace nezha
