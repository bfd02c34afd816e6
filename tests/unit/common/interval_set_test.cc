// SPDX-License-Identifier: Apache-2.0
#include "common/interval_set.h"

#include <random>
#include <set>

#include "gtest/gtest.h"

namespace nezha {
namespace {

TEST(IntervalSet, JoinsNeighbours) {
  IntervalSet set;
  EXPECT_TRUE(set.add(10, 20));
  EXPECT_TRUE(set.add(30, 40));
  EXPECT_EQ(set.intervals(), 2u);
  EXPECT_TRUE(set.add(20, 30));
  EXPECT_EQ(set.intervals(), 1u);
  EXPECT_TRUE(set.contains(10, 40));
  EXPECT_FALSE(set.contains(9, 40));
  EXPECT_FALSE(set.contains(10, 41));
  set.clear();
  EXPECT_EQ(set.intervals(), 0u);
  EXPECT_FALSE(set.contains(10));
}

TEST(IntervalSet, ContainsEveryEmptyInterval) {
  IntervalSet set;
  EXPECT_TRUE(set.add(5, 5));
  EXPECT_EQ(set.intervals(), 0u);
  EXPECT_TRUE(set.contains(5, 5));
  EXPECT_FALSE(set.intersects(5, 5));
  EXPECT_FALSE(set.contains(5));
}

TEST(IntervalSet, AgreesWithASetOfNumbers) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    IntervalSet set;
    std::set<uint64_t> reference;
    const uint64_t range = 20 + random() % 200;
    for (int i = 0; i < 150; ++i) {
      const uint64_t begin = random() % range;
      const uint64_t end = begin + random() % 8;
      bool all = true, some = false;
      for (uint64_t v = begin; v < end; ++v) {
        all &= reference.count(v) == 1;
        some |= reference.count(v) == 1;
      }
      ASSERT_EQ(set.contains(begin, end), all);
      ASSERT_EQ(set.intersects(begin, end), some);
      ASSERT_EQ(set.contains(begin), reference.contains(begin));
      ASSERT_EQ(set.add(begin, end), !some);
      if (!some) {
        for (uint64_t v = begin; v < end; ++v) reference.insert(v);
      }
      size_t runs = 0;
      for (const uint64_t v : reference) runs += reference.contains(v - 1) ? 0 : 1;
      ASSERT_EQ(set.intervals(), runs);
    }
  }
}

}  // namespace
}  // namespace nezha
