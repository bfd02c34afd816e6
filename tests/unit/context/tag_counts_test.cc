// SPDX-License-Identifier: Apache-2.0
#include "context/tag_counts.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

TEST(TagCounts, CountsEachTagForItself) {
  TagCounts counts;
  EXPECT_EQ(counts.of(7), 0u);
  EXPECT_EQ(counts.add(7), 1u);
  EXPECT_EQ(counts.add(8), 1u);
  EXPECT_EQ(counts.add(7), 2u);
  EXPECT_EQ(counts.of(6), 0u);
  EXPECT_EQ(counts.of(7), 2u);
  EXPECT_EQ(counts.of(8), 1u);
  EXPECT_EQ(counts.of(9), 0u);
}

TEST(TagCounts, HasTheFirstTagAndTheLast) {
  constexpr uint32_t kLast = std::numeric_limits<uint32_t>::max();
  TagCounts counts;
  for (const uint32_t tag : {uint32_t{0}, kLast, kLast - 1, kLast}) counts.add(tag);
  EXPECT_EQ(counts.of(0), 1u);
  EXPECT_EQ(counts.of(1), 0u);
  EXPECT_EQ(counts.of(kLast - 1), 1u);
  EXPECT_EQ(counts.of(kLast), 2u);
}

TEST(TagCounts, CountsAnyTagsInAnyOrder) {
  std::mt19937 random(1);
  for (const uint32_t tags : {3u, 20u, 1000u}) {
    TagCounts counts;
    std::map<uint32_t, uint64_t> expected;
    for (int i = 0; i < 20'000; ++i) {
      const auto tag = static_cast<uint32_t>(random() % tags);
      ASSERT_EQ(counts.add(tag), ++expected[tag]);
    }
    for (uint32_t tag = 0; tag < tags; ++tag) ASSERT_EQ(counts.of(tag), expected[tag]);
    EXPECT_LE(counts.runs(), tags + 1);
  }
}

TEST(TagCounts, StaysSmallWhileTagsCountUp) {
  TagCounts counts;
  for (uint32_t tag = 0; tag < 100'000; ++tag) {
    counts.add(tag);
    ASSERT_LE(counts.runs(), 2u);
  }
}

// Each thread takes every fourth tag, or a tag of its own repeatedly.
TEST(TagCounts, StaysSmallWhereThreadsCountUpSideBySide) {
  TagCounts counts;
  std::mt19937 random(1);
  std::vector<uint32_t> next{0, 1, 2, 3};
  for (int i = 0; i < 100'000; ++i) {
    uint32_t& tag = next[random() % next.size()];
    if (tag > *std::min_element(next.begin(), next.end()) + 100) continue;  // the thread waits
    counts.add(tag);
    counts.add(1'000'000'000);
    tag += 4;
    ASSERT_LE(counts.runs(), 110u);
  }
}

TEST(TagCounts, IsSmallAgainOnceTagsHaveTheSameCount) {
  TagCounts counts;
  std::vector<uint32_t> tags(10'000);
  std::iota(tags.begin(), tags.end(), 0);
  std::mt19937 random(1);
  for (uint64_t round = 1; round <= 3; ++round) {
    std::shuffle(tags.begin(), tags.end(), random);
    for (const uint32_t tag : tags) ASSERT_EQ(counts.add(tag), round);
    EXPECT_LE(counts.runs(), 2u);
  }
}

}  // namespace
}  // namespace nezha
