// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/secure/refusal_limit.h"

#include <gtest/gtest.h>

#include <string>

namespace nezha::flare {
namespace {

constexpr Nanos kLater = RefusalLimit::kPeriod;

TEST(RefusalLimitTest, TellsOfEachOnceAMinute) {
  RefusalLimit limit;
  EXPECT_EQ(limit.tell_of("a", 0), 0u);
  EXPECT_EQ(limit.tell_of("a", kLater / 2), std::nullopt);
  EXPECT_EQ(limit.tell_of("b", kLater / 2), 1u);
  EXPECT_EQ(limit.tell_of("a", kLater - 1), std::nullopt);
  EXPECT_EQ(limit.tell_of("a", kLater), 1u);
  EXPECT_EQ(limit.tell_of("b", kLater), 0u);
}

TEST(RefusalLimitTest, LimitsTheNumberOfReports) {
  RefusalLimit limit;
  size_t told = 0;
  for (int who = 0; who < 100'000; ++who) {
    told += limit.tell_of(std::to_string(who), who).has_value() ? 1 : 0;
  }
  EXPECT_EQ(told, RefusalLimit::kMost);
  EXPECT_EQ(limit.tell_of("another", kLater), 100'000 - RefusalLimit::kMost);
}

TEST(RefusalLimitTest, SaysHowManyWereNotTold) {
  EXPECT_EQ(and_others(0), "");
  EXPECT_EQ(and_others(3), " (3 more were refused since the line before)");
}

}  // namespace
}  // namespace nezha::flare
