// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/transport/virtual_clock.h"

#include <thread>

#include "gtest/gtest.h"

namespace nezha::testing {
namespace {

TEST(VirtualClock, MovesOnlyWhenToldAndOnlyInItsThread) {
  const Nanos before = now();
  {
    VirtualClock clock;
    const Nanos start = now();
    EXPECT_GT(start, before + 3000 * kSecond);
    clock.advance(kSecond);
    const Nanos later = now();
    EXPECT_GE(later - start, kSecond);
    EXPECT_LT(later - start, kSecond + kMicrosecond);
    Nanos elsewhere = 0;
    std::thread([&] { elsewhere = now(); }).join();
    EXPECT_LT(elsewhere, before + 3000 * kSecond);
  }
  EXPECT_LT(now(), before + 3000 * kSecond);
}

}  // namespace
}  // namespace nezha::testing
