// SPDX-License-Identifier: Apache-2.0
// A set of integers as sorted, disjoint, non-adjacent intervals.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "common/recycled.h"

namespace nezha {

// The set is small if numbers are added roughly in order, whatever the numbers are. It holds the
// received parts of a message, or the numbers of the messages that are complete.
class IntervalSet {
 public:
  // Adds [begin, end). Returns false, and adds nothing, if a part of it is in the set already.
  bool add(uint64_t begin, uint64_t end) {
    if (begin >= end) return true;
    const auto next = after(begin);
    if (next != intervals_.begin() && std::prev(next)->end > begin) return false;
    if (next != intervals_.end() && next->begin < end) return false;
    const bool joins_left = next != intervals_.begin() && std::prev(next)->end == begin;
    const bool joins_right = next != intervals_.end() && next->begin == end;
    if (joins_left && joins_right) {
      std::prev(next)->end = next->end;
      intervals_.erase(next);
    } else if (joins_left) {
      std::prev(next)->end = end;
    } else if (joins_right) {
      next->begin = begin;
    } else {
      intervals_.insert(next, Interval{begin, end});
    }
    return true;
  }

  bool contains(uint64_t value) const {
    const auto next = after(value);
    return next != intervals_.begin() && std::prev(next)->end > value;
  }

  // Returns whether all of [begin, end) is in the set.
  bool contains(uint64_t begin, uint64_t end) const {
    const auto next = after(begin);
    return begin >= end || (next != intervals_.begin() && std::prev(next)->end >= end);
  }

  // Returns whether a part of [begin, end) is in the set.
  bool intersects(uint64_t begin, uint64_t end) const {
    if (begin >= end) return false;
    const auto next = after(begin);
    return (next != intervals_.begin() && std::prev(next)->end > begin) ||
           (next != intervals_.end() && next->begin < end);
  }

  size_t intervals() const { return intervals_.size(); }
  void clear() { intervals_.clear(); }

 private:
  struct Interval {
    uint64_t begin, end;
  };
  using Intervals = absl::InlinedVector<Interval, 8, RecyclingAllocator<Interval>>;

  // Returns the first interval that begins after `value`.
  template <typename Self>
  static auto after(Self& intervals, uint64_t value) {
    return std::upper_bound(intervals.begin(), intervals.end(), value,
                            [](uint64_t v, const Interval& i) { return v < i.begin; });
  }
  Intervals::iterator after(uint64_t value) { return after(intervals_, value); }
  Intervals::const_iterator after(uint64_t value) const { return after(intervals_, value); }

  Intervals intervals_;
};

}  // namespace nezha
