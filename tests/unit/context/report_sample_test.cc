// SPDX-License-Identifier: Apache-2.0
#include "context/report_sample.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace nezha {
namespace {

constexpr uint64_t kShort = 4096;
constexpr uint64_t kLong = 64 << 10;
constexpr int kAll = ReportSample::kAllAtFirst;

// One rank, whose operations have one size class.
class ReportSampleTest : public ::testing::Test {
 protected:
  void change(uint64_t bytes, bool is_known = false) {
    sample_.on_change(size_class_of(bytes), ++number_, is_known);
  }
  // Returns how many of the next operations are reported.
  int taken(uint64_t bytes, int operations) { return taken(bytes, operations, number_); }
  int taken(uint64_t bytes, int operations, uint32_t number) {
    int taken = 0;
    for (int i = 0; i < operations; ++i) {
      taken += sample_.takes({{0, ++ordinal_}, bytes, number, {1000, 0}}) ? 1 : 0;
    }
    return taken;
  }

  ReportSample sample_;
  uint32_t number_ = 0;
  uint64_t ordinal_ = 0;
};

TEST_F(ReportSampleTest, TakesAllOfTheFirstOperationsAndThenOneInEight) {
  change(kShort);
  EXPECT_EQ(taken(kShort, kAll), kAll);
  EXPECT_NEAR(taken(kShort, 8192), 1024, 200);
}

TEST_F(ReportSampleTest, TakesASampleAtOnceIfTheTimesAreKnown) {
  change(kShort, /*is_known=*/true);
  EXPECT_NEAR(taken(kShort, 8192), 1024, 200);
}

TEST_F(ReportSampleTest, TakesAllLongOperations) {
  change(kLong, /*is_known=*/true);
  EXPECT_EQ(taken(kLong, 1000), 1000);
}

TEST_F(ReportSampleTest, TakesSomeOfEachOperationOfAProgramThatRepeatsItself) {
  change(kShort, /*is_known=*/true);
  for (uint64_t first = 0; first < 16; ++first) {
    int taken = 0;
    for (uint64_t i = 0; i < 200; ++i) {
      ordinal_ = first * 16 + i * 128;
      taken += this->taken(kShort, 1);
    }
    EXPECT_GT(taken, 0) << first;
  }
}

TEST_F(ReportSampleTest, ChoosesTheSameOperationsOnAllRanks) {
  change(kShort, /*is_known=*/true);
  ReportSample other;
  other.on_change(size_class_of(kShort), number_, true);
  for (uint64_t ordinal = 1; ordinal < 1000; ++ordinal) {
    const Reading reading{{0, ordinal}, kShort, number_, {1000, 0}};
    EXPECT_EQ(sample_.takes(reading), other.takes(reading)) << ordinal;
  }
}

// Operations that began before a change are over after it.
TEST_F(ReportSampleTest, TakesLateOperationsAsBeforeTheChange) {
  change(kShort);
  EXPECT_EQ(taken(kShort, 10), 10);
  const uint32_t before = number_;
  change(kShort);
  EXPECT_EQ(taken(kShort, 5, before), 5);
  change(kShort, /*is_known=*/true);
  const uint32_t sampled = number_;
  EXPECT_LT(taken(kShort, 1000), 500);
  change(kShort);
  EXPECT_LT(taken(kShort, 1000, sampled), 500);
}

TEST_F(ReportSampleTest, AwaitsTheOperationsThatMayEndAWindow) {
  change(kShort);
  const SizeClass size_class = size_class_of(kShort);
  EXPECT_FALSE(sample_.is_awaited(size_class));
  for (int i = 1; i <= 20; ++i) {
    (void)taken(kShort, 1);
    EXPECT_EQ(sample_.is_awaited(size_class), i >= 3 && i <= Timer::kOperations) << i;
  }
}

TEST_F(ReportSampleTest, AwaitsNothingWhereTheTimesAreKnown) {
  change(kShort, /*is_known=*/true);
  (void)taken(kShort, 5);
  EXPECT_FALSE(sample_.is_awaited(size_class_of(kShort)));
}

}  // namespace
}  // namespace nezha
