// SPDX-License-Identifier: Apache-2.0
// A clock that a test moves: while one lives, common/clock.h's now() is its time in the thread that
// made it, and only there. The executable's std::chrono::steady_clock::now is replaced for that
// (virtual_clock_test.cc).
#pragma once

#include "common/clock.h"

namespace nezha::testing {

class VirtualClock {
 public:
  // It starts far ahead of the real time, so that no other thread thinks that something is due.
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
