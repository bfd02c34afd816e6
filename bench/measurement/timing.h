// SPDX-License-Identifier: Apache-2.0
// Times of a measurement, in microseconds.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace nezha::bench {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

inline double microseconds_since(Clock::time_point start) {
  return Microseconds(Clock::now() - start).count();
}

// Returns the percentile as Gloo's benchmark program defines it.
inline double percentile(const std::vector<double>& sorted, double part) {
  const auto index = static_cast<size_t>(part * static_cast<double>(sorted.size()));
  return sorted[std::min(index, sorted.size() - 1)];
}

}  // namespace nezha::bench
