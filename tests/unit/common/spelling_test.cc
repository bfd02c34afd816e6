// SPDX-License-Identifier: Apache-2.0
#include "common/spelling.h"

#include "gtest/gtest.h"

namespace nezha {
namespace {

TEST(EditDistance, CountsLettersThatAreInsertedRemovedAndReplaced) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("ring", "ring"), 0u);
  EXPECT_EQ(edit_distance("", "ring"), 4u);
  EXPECT_EQ(edit_distance("ring", ""), 4u);
  EXPECT_EQ(edit_distance("rng", "ring"), 1u);
  EXPECT_EQ(edit_distance("string", "ring"), 2u);
  EXPECT_EQ(edit_distance("rang", "ring"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(NearName, IsTheNearestUnlessMoreThanAThirdIsWrong) {
  EXPECT_EQ(near_name("rung", {"bcube", "ring", "rings"}), "ring");
  EXPECT_EQ(near_name("logg", {"log", "rails"}), "log");
  EXPECT_EQ(near_name("foo", {"log", "rails"}), std::nullopt);
  EXPECT_EQ(near_name("abcdxy", {"abcdef"}), "abcdef");
  EXPECT_EQ(near_name("abcxyz", {"abcdef"}), std::nullopt);
  EXPECT_EQ(near_name("", {"log"}), std::nullopt);
}

}  // namespace
}  // namespace nezha
