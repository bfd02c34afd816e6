// SPDX-License-Identifier: Apache-2.0
// A clock that a test moves. While one exists, now() of common/clock.h returns its time in the
// thread that created it, and only there. For that, the executable replaces
// std::chrono::steady_clock::now (virtual_clock.cc).
#pragma once

#include "common/clock.h"

namespace nezha::testing {

class VirtualClock {
 public:
  // Starts far ahead of the real time, so that no other thread finds a timer due.
  VirtualClock();
  ~VirtualClock();
  VirtualClock(const VirtualClock&) = delete;
  VirtualClock& operator=(const VirtualClock&) = delete;

  void advance(Nanos by) { time_ += by; }
  Nanos tick() { return time_ += kTick; }  // each reading takes a little time

 private:
  static constexpr Nanos kTick = 20;
  Nanos time_ = 0;
};

}  // namespace nezha::testing
