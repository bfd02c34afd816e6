// SPDX-License-Identifier: Apache-2.0
// Sizes of messages that are balanced alike.
#pragma once

#include <bit>
#include <cstdint>
#include <map>

namespace nezha {

// floor(log2(bytes)): 0 for one byte, and for none.
using SizeClass = uint8_t;

constexpr SizeClass kSizeClasses = 64;

constexpr SizeClass size_class_of(uint64_t bytes) {
  return static_cast<SizeClass>(bytes == 0 ? 0 : std::bit_width(bytes) - 1);
}

// The message in the middle of a class.
constexpr uint64_t typical_bytes(SizeClass size_class) {
  const uint64_t least = uint64_t{1} << size_class;
  return least + least / 2;
}

// The entry of the class, or else of the nearest one; of two as near, that of the smaller messages.
// The end if there is none. The same wherever the classes that have entries are the same.
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
