// SPDX-License-Identifier: Apache-2.0
// The one clock of the data path.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace nezha {

// A point in time or a span, in nanoseconds of the steady clock. A plain integer, because every
// segment compares, stores and subtracts such values.
using Nanos = int64_t;

constexpr Nanos kMicrosecond = 1'000;
constexpr Nanos kMillisecond = 1'000'000;
constexpr Nanos kSecond = 1'000'000'000;

inline Nanos now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The result is at most a year: longer times, which no run reaches, could overflow.
inline Nanos to_nanos(std::chrono::milliseconds time) {
  constexpr std::chrono::hours kForever{24 * 365};
  return std::chrono::nanoseconds(std::min<std::chrono::milliseconds>(time, kForever)).count();
}

}  // namespace nezha
