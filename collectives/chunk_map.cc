// SPDX-License-Identifier: Apache-2.0
#include "collectives/chunk_map.h"

#include <algorithm>

namespace nezha {
namespace {

size_t end_of(const Range& range) { return range.offset + range.length; }

// Calls f with each range of `a` that `b` covers (or does not), in order.
template <typename F>
void cut(const ChunkMap& a, const ChunkMap& b, F f) {
  auto other = b.begin();
  for (const Range& range : a) {
    size_t at = range.offset;
    while (at < end_of(range)) {
      while (other != b.end() && end_of(*other) <= at) ++other;
      const bool is_covered = other != b.end() && other->offset <= at;
      size_t until = end_of(range);
      if (other != b.end()) until = std::min(until, is_covered ? end_of(*other) : other->offset);
      f(Range{at, until - at}, is_covered);
      at = until;
    }
  }
}

}  // namespace

void add(ChunkMap& map, const Range& range) {
  if (range.length == 0) return;
  // The first range that the new one touches, and the first range behind it that it does not touch.
  const auto first = std::partition_point(
      map.begin(), map.end(), [&](const Range& each) { return end_of(each) < range.offset; });
  const auto last = std::partition_point(
      first, map.end(), [&](const Range& each) { return each.offset <= end_of(range); });
  if (first == last) {
    map.insert(first, range);
    return;
  }
  const size_t begin = std::min(first->offset, range.offset);
  const size_t end = std::max(end_of(*(last - 1)), end_of(range));
  *first = {begin, end - begin};
  map.erase(first + 1, last);
}

ChunkMap difference(const ChunkMap& a, const ChunkMap& b) {
  ChunkMap result;
  cut(a, b, [&](const Range& range, bool is_covered) {
    if (!is_covered) result.push_back(range);
  });
  return result;
}

ChunkMap intersection(const ChunkMap& a, const ChunkMap& b) {
  ChunkMap result;
  cut(a, b, [&](const Range& range, bool is_covered) {
    if (is_covered) result.push_back(range);
  });
  return result;
}

}  // namespace nezha
