// SPDX-License-Identifier: Apache-2.0
#include "context/lost_ranks.h"

#include <vector>

#include "context/raise.h"
#include "gtest/gtest.h"
#include "nezha/errors.h"

namespace nezha {
namespace {

using Ranks = std::vector<int>;

TEST(LostRanks, AnErrorHasNoneByDefault) {
  EXPECT_EQ(lost_ranks(absl::UnavailableError("why")), Ranks{});
  EXPECT_EQ(lost_ranks(with_lost_ranks(absl::UnavailableError("why"), {})), Ranks{});
}

TEST(LostRanks, AreInOrderAndEachOnce) {
  const auto status = with_lost_ranks(absl::UnavailableError("why"), {12, 3});
  EXPECT_EQ(lost_ranks(status), (Ranks{3, 12}));
  EXPECT_EQ(lost_ranks(with_lost_ranks(status, {0, 12})), (Ranks{0, 3, 12}));
  EXPECT_EQ(status.message(), "why");
}

TEST(LostRanks, ReachTheException) {
  try {
    raise("rank 0 of 4", with_lost_ranks(absl::DeadlineExceededError("late"), {2}));
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.ranks(), Ranks{2});
    return;
  }
  FAIL();
}

}  // namespace
}  // namespace nezha
