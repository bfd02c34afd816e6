// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/transport/virtual_clock.h"

#include <ctime>

namespace nezha::testing {
namespace {

thread_local VirtualClock* current = nullptr;

Nanos real_time() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

Nanos current_time() { return current != nullptr ? current->tick() : real_time(); }

}  // namespace

VirtualClock::VirtualClock() : time_(real_time() + 3600 * kSecond) { current = this; }
VirtualClock::~VirtualClock() { current = nullptr; }

// For steady_clock::now() below, which cannot see names in the unnamed namespace.
Nanos test_time();
Nanos test_time() { return current_time(); }

}  // namespace nezha::testing

// The definition in an executable replaces the library's.
std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  return time_point(std::chrono::nanoseconds(nezha::testing::test_time()));
}
