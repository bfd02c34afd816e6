// SPDX-License-Identifier: Apache-2.0
// A vector may consist of a block for each rank, one after the other. Blocks says where each block
// is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "collectives/partition.h"
#include "common/recycled.h"

namespace nezha {

class Blocks {
 public:
  // `counts` are the blocks' lengths in elements.
  Blocks(absl::Span<const size_t> counts, size_t element_size) : ends_(counts.size()) {
    size_t end = 0;
    for (size_t i = 0; i < counts.size(); ++i) ends_[i] = end += counts[i] * element_size;
  }

  // Returns a checksum of the blocks' lengths.
  uint32_t fingerprint() const {
    uint64_t hash = ends_.size();
    for (const size_t end : ends_) hash = (hash ^ (hash >> 29) ^ end) * 0xbf58476d1ce4e5b9U;
    return static_cast<uint32_t>(hash >> 32);
  }
  int count() const { return static_cast<int>(ends_.size()); }
  size_t bytes() const { return ends_.back(); }
  Range block(int i) const { return blocks(i, i + 1); }
  // Returns where the blocks [begin, end) are. The range is not empty.
  Range blocks(int begin, int end) const {
    const size_t offset = begin == 0 ? 0 : ends_[static_cast<size_t>(begin) - 1];
    return {offset, ends_[static_cast<size_t>(end) - 1] - offset};
  }

 private:
  RecycledVector<size_t> ends_;  // bytes
};

}  // namespace nezha
