// SPDX-License-Identifier: Apache-2.0
// The steady clock and the sleep of ranks that are threads of a test; see rank_time.
#include <cerrno>
#include <chrono>
#include <ctime>

#include "tests/unit/bench/fake_runner.h"

// The definitions in an executable replace the libraries'.
std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const auto real = std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  return time_point(nezha::bench::rank_time.value_or(real));
}

extern "C" int nanosleep(const timespec* time, timespec* remaining) {
  if (nezha::bench::rank_time) {
    *nezha::bench::rank_time +=
        std::chrono::seconds(time->tv_sec) + std::chrono::nanoseconds(time->tv_nsec);
    return 0;
  }
  errno = clock_nanosleep(CLOCK_MONOTONIC, 0, time, remaining);
  return errno == 0 ? 0 : -1;
}
