// SPDX-License-Identifier: Apache-2.0
#include "transport/shared_contexts.h"

#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

using Ids = std::vector<UniqueId>;

bool always(const UniqueId&) { return true; }
bool never(const UniqueId&) { return false; }

class SharedContextsTest : public ::testing::Test {
 protected:
  static constexpr UniqueId kOne{1, 10}, kOther{2, 20};

  Ids end_closed(bool is_pending = false) {
    return contexts_.end_closed([is_pending](uint64_t) { return is_pending; });
  }

  SharedContexts contexts_;
};

TEST_F(SharedContextsTest, UntoldContextsAreTakenOnce) {
  EXPECT_TRUE(contexts_.enter(kOne));
  EXPECT_FALSE(contexts_.enter(kOne));
  EXPECT_EQ(contexts_.take_untold(never), Ids());
  EXPECT_EQ(contexts_.take_untold(always), Ids{kOne});
  EXPECT_EQ(contexts_.take_untold(always), Ids());
  contexts_.tell_again();
  contexts_.told(kOne);
  EXPECT_EQ(contexts_.take_untold(always), Ids());
}

TEST_F(SharedContextsTest, ContextsThatThePeerNamedNeedNotBeTold) {
  contexts_.peer_entered(kOne, /*is_member=*/true);
  EXPECT_TRUE(contexts_.contains(kOne));
  EXPECT_EQ(contexts_.take_untold(always), Ids());
}

TEST_F(SharedContextsTest, AClosedOneEndsWhenNothingOfItIsPending) {
  contexts_.enter(kOne);
  contexts_.close(kOne);
  EXPECT_EQ(contexts_.open(), Ids());
  EXPECT_EQ(end_closed(/*is_pending=*/true), Ids());
  EXPECT_TRUE(contexts_.contains(kOne));
  EXPECT_EQ(end_closed(), Ids{kOne});
  EXPECT_FALSE(contexts_.contains(kOne));
  EXPECT_TRUE(contexts_.is_closed(kOne));
}

TEST_F(SharedContextsTest, APeerThatHasLeftIsNotToldOfTheEnd) {
  contexts_.enter(kOne);
  contexts_.peer_left(kOne);
  EXPECT_TRUE(contexts_.has_left(kOne.low));
  contexts_.close(kOne);
  EXPECT_EQ(end_closed(), Ids());
  EXPECT_FALSE(contexts_.is_closed(kOne));
}

TEST_F(SharedContextsTest, ThePeerMayLeaveAnUnknownContext) {
  contexts_.peer_left(kOne);
  EXPECT_TRUE(contexts_.has_left(kOne.low));
  EXPECT_FALSE(contexts_.has_open(always));
}

TEST_F(SharedContextsTest, TurnsGoToThoseThatThePeerHasNotLeft) {
  contexts_.enter(kOne);
  contexts_.enter(kOther);
  EXPECT_EQ(*contexts_.next(0), kOne);
  EXPECT_EQ(*contexts_.next(1), kOther);
  contexts_.peer_left(kOther);
  EXPECT_EQ(*contexts_.next(1), kOne);
  contexts_.peer_left(kOne);
  EXPECT_EQ(contexts_.next(0), nullptr);
}

TEST_F(SharedContextsTest, AStrangerCannotMakeItGrow) {
  for (uint64_t i = 0; i < 2 * SharedContexts::kMost; ++i) {
    contexts_.peer_entered({7, i}, /*is_member=*/false);
    contexts_.peer_left({8, i});
  }
  EXPECT_EQ(contexts_.open().size() * 2, SharedContexts::kMost);
  contexts_.peer_entered(kOne, /*is_member=*/true);
  EXPECT_TRUE(contexts_.contains(kOne));
}

TEST_F(SharedContextsTest, OnlyTheLatestEndsAreRemembered) {
  for (uint64_t i = 0; i <= SharedContexts::kMostClosed; ++i) {
    contexts_.enter({7, i});
    contexts_.close({7, i});
    end_closed();
  }
  EXPECT_EQ(contexts_.closed().size(), SharedContexts::kMostClosed);
  EXPECT_FALSE(contexts_.is_closed({7, 0}));
  EXPECT_TRUE(contexts_.is_closed({7, 1}));
}

}  // namespace
}  // namespace nezha
