// SPDX-License-Identifier: Apache-2.0
// Arrivals measures how fast a task's data arrive, which tells how long the task may be left alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/clock.h"

namespace nezha {

class Arrivals {
 public:
  void add(uint64_t bytes, Nanos time) {
    if (bytes_ == 0) first_at_ = time;
    bytes_ += bytes;
  }

  static constexpr Nanos kSlack = 2 * kMillisecond;

  // Returns whether the `left` bytes take so long to arrive that none of them is urgent.
  bool has_slack(uint64_t left, Nanos time, Nanos slack = kSlack) const {
    return time_of(left, time) >= slack;
  }

  // Returns how long to wait until a batch of the `left` bytes has arrived. The rest is short,
  // because other ranks wait for what this rank forwards, and have work for only a few
  // milliseconds. It is 0 if it would not be worth going to sleep for.
  Nanos rest(uint64_t left, Nanos time) const {
    const Nanos rest = std::min(time_of(kBatch, time), time_of(left, time) / 8);
    return rest < kLeast ? 0 : std::min(rest, kMost);
  }

 private:
  // Returns the time that `bytes` take at the rate so far; 0 if there is none.
  Nanos time_of(uint64_t bytes, Nanos time) const {
    if (bytes_ == 0) return 0;
    const auto elapsed = static_cast<double>(time - first_at_);
    return static_cast<Nanos>(elapsed * static_cast<double>(bytes) / static_cast<double>(bytes_));
  }

  static constexpr uint64_t kBatch = 48 << 10;  // bytes
  static constexpr Nanos kLeast = 100 * kMicrosecond;
  static constexpr Nanos kMost = kMillisecond;

  uint64_t bytes_ = 0;
  Nanos first_at_ = 0;
};

}  // namespace nezha
