// SPDX-License-Identifier: Apache-2.0
// How a vector is cut into chunks, one for each rank, and chunks into slices, one for each engine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace nezha {

// A part of each chunk: [begin, end) of kWhole. Slices are cut inside of chunks, so they change
// neither which chunk an element is in nor the order in which it is summed.
struct SliceBounds {
  static constexpr uint32_t kWhole = 1u << 20;
  uint32_t begin = 0;
  uint32_t end = kWhole;
};

// Bytes [offset, offset + length) of the vector.
struct Range {
  size_t offset = 0;
  size_t length = 0;
};

// Cuts at cache lines, as far as the vector's own alignment allows, and never inside an element.
class Partition {
 public:
  Partition(size_t elements, size_t element_size, int chunks)
      : bytes_(elements * element_size),
        unit_(std::max<size_t>(1, 64 / element_size) * element_size),
        chunks_(static_cast<size_t>(chunks)) {}

  // Returns the slice of chunk i, 0 <= i < chunks.
  Range chunk(int i, const SliceBounds& slice) const {
    const size_t units = (bytes_ + unit_ - 1) / unit_;
    const auto index = static_cast<size_t>(i);
    const size_t first = units / chunks_ * index + std::min(index, units % chunks_);
    const size_t count = units / chunks_ + (index < units % chunks_ ? 1 : 0);
    const size_t begin = std::min(bytes_, (first + scaled(count, slice.begin)) * unit_);
    const size_t end = std::min(bytes_, (first + scaled(count, slice.end)) * unit_);
    return {begin, end - begin};
  }

  size_t granule() const { return unit_; }

 private:
  static size_t scaled(size_t units, uint32_t part) {
    // Computed in two steps, so that nothing overflows: units may be up to 2^60.
    return units / SliceBounds::kWhole * part +
           units % SliceBounds::kWhole * part / SliceBounds::kWhole;
  }

  size_t bytes_;
  size_t unit_;
  size_t chunks_;
};

}  // namespace nezha
