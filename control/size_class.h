// SPDX-License-Identifier: Apache-2.0
// Size classes. Messages of one class are balanced alike.
#pragma once

#include <bit>
#include <cstdint>
#include <map>

namespace nezha {

// floor(log2(bytes)); an empty message has class 0, too.
using SizeClass = uint8_t;

constexpr SizeClass kSizeClasses = 64;

constexpr SizeClass size_class_of(uint64_t bytes) {
  return static_cast<SizeClass>(bytes == 0 ? 0 : std::bit_width(bytes) - 1);
}

// Returns the size in the middle of a class.
constexpr uint64_t typical_bytes(SizeClass size_class) {
  const uint64_t least = uint64_t{1} << size_class;
  return least + least / 2;
}

// Returns the entry of the class or of the nearest one; if two are equally near, that of the
// smaller messages. Returns end() if there are no entries. The choice depends only on which classes
// have entries.
template <typename Entry>
typename std::map<SizeClass, Entry>::const_iterator nearest(
    const std::map<SizeClass, Entry>& entries, SizeClass size_class) {
  const auto above = entries.lower_bound(size_class);
  if (above == entries.begin()) return above;
  const auto below = std::prev(above);
  if (above == entries.end()) return below;
  return above->first - size_class < size_class - below->first ? above : below;
}

}  // namespace nezha
