// SPDX-License-Identifier: Apache-2.0
// What members of a Gloo context send and receive.
#include <limits>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "interop/gloo/member.h"
#include "nezha/errors.h"
#include "tests/unit/interop/gloo/played_peer.h"

namespace nezha::interop {
namespace {

class MemberTransfersTest : public ::testing::Test {
 protected:
  MemberTransfersTest() { meet(zero_, one_); }

  Party zero_{0}, one_{1};
};

TEST_F(MemberTransfersTest, ARankThatIsNamedTwiceIsOneSource) {
  std::string words[] = {"a", "b"};
  std::string byte = ".";
  for (std::string& word : words) one_.send(0, word);
  zero_.receive({1, 1}, 0, byte);
  EXPECT_EQ(zero_.wait_received(), 1);
  EXPECT_EQ(byte, "a");
  zero_.receive({1}, 0, byte);
  EXPECT_EQ(zero_.wait_received(), 1);
  EXPECT_EQ(byte, "b");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(one_.wait_sent(), 0);
}

TEST_F(MemberTransfersTest, ABoundBufferGetsAllMessagesOfItsSlotUntilItIsGivenBack) {
  std::string room(8, '.');
  one_.bind(3, room);
  EXPECT_TRUE(throws<InvalidArgument>("slot 3 of the pair with rank 0 has a buffer already",
                                      [&] { one_.bind(3, room); }));
  std::string word = "late";
  zero_.send_bound(3, word, 4);
  EXPECT_EQ(zero_.wait_sent(), 1);
  word = "soon";  // the message is a copy
  zero_.send_bound(3, word, 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(one_.wait_received(), 0);
  EXPECT_EQ(room, "soonlate");
  one_.give_receives_back();
  std::string other(4, '.');
  one_.bind(3, other);
  zero_.send_bound(3, word, 0);
  EXPECT_EQ(one_.wait_received(), 0);
  EXPECT_EQ(other, "soon");
  zero_.send_bound(3, word, 1);
  EXPECT_TRUE(throws<IoError>("rank 0 has sent 4 bytes at byte 1 to a receive of 4 bytes",
                              [&] { one_.wait_received(); }));
}

TEST_F(MemberTransfersTest, WhatIsGivenBackReceivesNothing) {
  std::string first = ".";
  std::string second = ".";
  one_.receive({0}, 0, first);
  one_.give_receives_back();
  std::string word = "w";
  zero_.send(0, word);
  one_.receive({0}, 0, second);
  EXPECT_EQ(one_.wait_received(), 0);
  EXPECT_EQ(first + second, ".w");
  EXPECT_EQ(zero_.wait_sent(), 1);
}

TEST_F(MemberTransfersTest, RefusesTheSlotsThatItUsesItself) {
  constexpr uint64_t kEnd = std::numeric_limits<uint64_t>::max() - (uint64_t{1} << 32) + 1;
  std::string word = "w";
  std::string room = ".";
  const std::string words = "is not below 18446744069414584320";
  EXPECT_TRUE(throws<InvalidArgument>(words, [&] { zero_.send(kEnd, word); }));
  EXPECT_TRUE(throws<InvalidArgument>(words, [&] { one_.receive({0}, kEnd, room); }));
  zero_.send(kEnd - 1, word);
  one_.receive({0}, kEnd - 1, room);
  EXPECT_EQ(one_.wait_received(), 0);
  EXPECT_EQ(room, "w");
  EXPECT_EQ(zero_.wait_sent(), 1);
}

TEST_F(MemberTransfersTest, AnAbortedWaitHasNoRankAndEndsNoTransfer) {
  std::string word = "w";
  std::string room = ".";
  one_.receive({0}, 0, room);
  one_.member.abort_wait(*one_.receives);
  EXPECT_EQ(one_.wait_received(), std::nullopt);
  zero_.send(0, word);
  EXPECT_EQ(one_.wait_received(), 0);
  EXPECT_EQ(zero_.wait_sent(), 1);
}

// A send to a bound buffer ends at once, and so its message may be on its way for longer.
TEST_F(MemberTransfersTest, WhatWasSentBeforeAClosingCanBeReceived) {
  std::string word = "w";
  std::string room = ".";
  zero_.send_bound(3, word, 0);
  zero_.member.close(1);
  one_.bind(3, room);
  EXPECT_EQ(one_.wait_received(), 0);
  EXPECT_EQ(room, "w");
}

}  // namespace
}  // namespace nezha::interop
