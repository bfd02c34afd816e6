// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/peer.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "interop/gloo/completions.h"
#include "interop/gloo/member.h"
#include "interop/gloo/transfer.h"

namespace nezha::interop {
namespace {

struct Placed final : Transfer {
  Placed(Completions& owner, uint64_t tag) : Transfer(owner, tag) {}
  void withdraw() override {}
  bool fails_with(Peer& /*peer*/) override { return true; }
  std::string describe() const override { return ""; }
};

class InOrderTest : public ::testing::Test {
 protected:
  using Transfers = std::vector<Transfer*>;

  Member member_{0, 1, {"tcp:lo"}};
  Completions owner_{member_, "recv"};
  Placed first_{owner_, 1}, second_{owner_, 1}, third_{owner_, 1}, other_{owner_, 2};
  InOrder order_;
};

TEST_F(InOrderTest, TransfersOfATagEndInTheOrderInWhichTheyWereAdded) {
  for (Transfer* transfer : {&first_, &second_, &third_}) order_.add(*transfer);
  EXPECT_EQ(order_.complete(second_), Transfers());
  EXPECT_EQ(order_.complete(first_), (Transfers{&first_, &second_}));
  EXPECT_EQ(order_.complete(third_), Transfers{&third_});
}

TEST_F(InOrderTest, TagsDoNotWaitForEachOther) {
  order_.add(first_);
  order_.add(other_);
  EXPECT_EQ(order_.complete(other_), Transfers{&other_});
}

TEST_F(InOrderTest, ARemovedTransferBlocksNoOther) {
  for (Transfer* transfer : {&first_, &second_, &third_}) order_.add(*transfer);
  EXPECT_EQ(order_.complete(second_), Transfers());
  EXPECT_EQ(order_.remove(first_), Transfers{&second_});
  EXPECT_EQ(order_.complete(third_), Transfers{&third_});
}

TEST_F(InOrderTest, WhatIsRemovedFromTheMiddleEndsNothing) {
  for (Transfer* transfer : {&first_, &second_, &third_}) order_.add(*transfer);
  EXPECT_EQ(order_.complete(third_), Transfers());
  EXPECT_EQ(order_.remove(second_), Transfers());
  EXPECT_EQ(order_.complete(first_), (Transfers{&first_, &third_}));
  EXPECT_EQ(order_.remove(first_), Transfers()) << "it is no longer there";
}

}  // namespace
}  // namespace nezha::interop
