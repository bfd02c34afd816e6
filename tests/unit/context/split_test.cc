// SPDX-License-Identifier: Apache-2.0
#include "context/split.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

using Votes = std::vector<SplitVote>;

// The table after the exchange: the sum of what all ranks contribute.
SplitTable exchanged(const Votes& votes) {
  const int size = static_cast<int>(votes.size());
  SplitTable sum(size);
  for (int rank = 0; rank < size; ++rank) {
    SplitTable own(size);
    own.set(rank, votes[static_cast<size_t>(rank)]);
    for (size_t i = 0; i < sum.words().size(); ++i) sum.words()[i] += own.words()[i];
  }
  return sum;
}

TEST(Split, TheExchangeKeepsWhatEachRankSays) {
  constexpr int kLeast = std::numeric_limits<int>::min();
  constexpr int kMost = std::numeric_limits<int>::max();
  const Votes votes = {{-1, kLeast, {1, 2}}, {kMost, -1, {~0ULL, ~0ULL}}, {0, kMost, {0, 5}}};
  const SplitTable table = exchanged(votes);
  ASSERT_EQ(table.size(), 3);
  for (int rank = 0; rank < 3; ++rank) {
    const SplitVote& expected = votes[static_cast<size_t>(rank)];
    EXPECT_EQ(table.vote(rank).color, expected.color);
    EXPECT_EQ(table.vote(rank).key, expected.key);
    EXPECT_EQ(table.vote(rank).id, expected.id);
  }
}

TEST(Split, GroupsByColor) {
  const SplitTable table = exchanged({{7, 0, {}}, {3, 0, {}}, {-1, 0, {}}, {7, 0, {}}});
  EXPECT_EQ(table.group_of(0), (std::vector<int>{0, 3}));
  EXPECT_EQ(table.group_of(3), (std::vector<int>{0, 3}));
  EXPECT_EQ(table.group_of(1), std::vector<int>{1});
}

TEST(Split, OrdersByKeyThenByRank) {
  const SplitTable table =
      exchanged({{1, 5, {}}, {1, -2, {}}, {1, 5, {}}, {2, -9, {}}, {1, 0, {}}, {1, -2, {}}});
  EXPECT_EQ(table.group_of(4), (std::vector<int>{1, 5, 4, 0, 2}));
}

}  // namespace
}  // namespace nezha
