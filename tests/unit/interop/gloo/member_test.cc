// SPDX-License-Identifier: Apache-2.0
// The ranks are in this process, connected by rails of the loopback interface.
#include "interop/gloo/member.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "nezha/allreduce.h"
#include "nezha/errors.h"
#include "nezha/gloo.h"
#include "tests/unit/interop/gloo/gloo_ranks.h"
#include "tests/unit/interop/gloo/played_peer.h"
#include "tests/unit/transport/log_lines.h"

namespace nezha::interop {
namespace {

using std::chrono::milliseconds;

class MemberTest : public GlooRanks {};

TEST_F(MemberTest, NeedsARailThatIsNoSwitchs) {
  EXPECT_TRUE(throws<InvalidArgument>("a Gloo context needs a rail that is no switch's",
                                      [] { const Member member(0, 1, {"flare:lo@127.0.0.1:1"}); }));
}

// ---- Meeting -----------------------------------------------------------------------------------

TEST_F(MemberTest, RanksThatHaveMetExchangeMessages) {
  Party zero(0);
  Party one(1);
  EXPECT_FALSE(zero.is_connected());
  meet(zero, one);
  EXPECT_TRUE(zero.is_connected());
  EXPECT_TRUE(one.is_connected());
  std::string there = "there";
  std::string back = "back";
  std::string at_one(5, '.');
  std::string at_zero(4, '.');
  zero.send(7, there);
  one.send(7, back);
  zero.receive({1}, 7, at_zero);
  one.receive({0}, 7, at_one);
  EXPECT_EQ(zero.wait_received(), 1);
  EXPECT_EQ(one.wait_received(), 0);
  EXPECT_EQ(at_zero + at_one, back + there);
  EXPECT_EQ(zero.wait_sent(), 1);
  EXPECT_EQ(one.wait_sent(), 0);
}

TEST_F(MemberTest, APeerMayConnectBeforeThisRankIsToldOfIt) {
  Party early(0);
  Party late(1);
  std::string sent = "m";
  std::string received = ".";
  early.connect(late);
  early.send(0, sent);
  ASSERT_TRUE(early.until(
      [&] { return absl::StrContains(early.sends->describe(), "a: connected; b: connected"); }));
  late.connect(early);
  late.receive({0}, 0, received);
  EXPECT_EQ(late.wait_received(), 0);
  EXPECT_EQ(received, "m");
  EXPECT_EQ(early.wait_sent(), 1);
}

TEST_F(MemberTest, RefusesRanksThatAreNoOthersOrAreNotConnected) {
  Party zero(0);
  Party one(1);
  std::string word = "w";
  for (const int rank : {-1, 0, 2}) {
    const std::string words = absl::StrCat(rank, " is not the rank of another process");
    const auto connects = [&] { zero.member.connect(rank, one.member.address().bytes()); };
    EXPECT_TRUE(throws<InvalidArgument>(words, connects)) << rank;
    const auto sends = [&] {
      zero.member.send(*zero.sends, rank, 0, Party::bytes_of(word), word.size());
    };
    EXPECT_TRUE(throws<InvalidArgument>(words, sends)) << rank;
  }
  const std::string missing = "rank 1 is not connected; connect the context first";
  EXPECT_TRUE(throws<IoError>(missing, [&] { zero.send(0, word); }));
  EXPECT_TRUE(throws<IoError>(missing, [&] { zero.receive({1}, 0, word); }));
  EXPECT_TRUE(
      throws<IoError>("names no rank other than this one", [&] { zero.receive({0}, 0, word); }));
}

TEST_F(MemberTest, RefusesAPeerWithWhichItCannotWork) {
  const testing::LogLines lines;  // the peer has fewer rails, which is told
  Party zero(0);
  const auto connect = [&](const std::string& address) {
    zero.member.connect(1, {address.begin(), address.end()});
  };
  EXPECT_TRUE(throws<InvalidArgument>("its address is not one of nezha's",
                                      [&] { connect("tcp://10.0.0.1"); }));
  const PlayedPeer peer(zero.member.address());
  const std::vector<std::string> words = absl::StrSplit(peer.address, ' ');
  EXPECT_TRUE(throws<InvalidArgument>("rank 1 runs by other settings than this rank", [&] {
    connect(absl::StrReplaceAll(peer.address, {{words[2], "00000000"}}));
  }));
  EXPECT_TRUE(throws<IoError>("no rail in common with rank 1, which has: c at ", [&] {
    connect(absl::StrReplaceAll(peer.address, {{" a ", " c "}}));
  }));
  EXPECT_FALSE(zero.is_connected());
  connect(peer.address);
  EXPECT_TRUE(zero.is_connected());
}

TEST_F(MemberTest, ABadDescriptionOfRailsIsToldAndCostsNothing) {
  Record other;
  other.process = UniqueId::random();
  other.devices["a"] = "127.0.0.1:1";
  testing::LogLines lines;
  for (const auto& [text, words] : {std::pair<std::string, std::string>{"rubbish", ""},
                                    {other.encode(), "it describes another process"}}) {
    std::string sent = "w";
    std::string received = ".";
    Party zero(0);
    PlayedPeer peer(zero.member.address());
    zero.member.connect(1, {peer.address.begin(), peer.address.end()});
    peer.describe_rails(text);
    ASSERT_TRUE(zero.until([&, &its_words = words] {
      return !lines.take("that rank 1 sent of its rails cannot be used: " + its_words).empty();
    })) << text;
    peer.send(3, sent);
    zero.receive({1}, 3, received);
    EXPECT_EQ(zero.wait_received(), 1);
    EXPECT_EQ(received, "w");
  }
}

TEST_F(MemberTest, WarnsOfRailsThatAPeerDoesNotHave) {
  testing::LogLines lines;
  Party zero(0);
  Party one(1, {"tcp:lo?rail=a", "tcp:lo?rail=c"});
  zero.connect(one);
  EXPECT_EQ(lines.take("this rank has the rails a, b, and rank 1 has a, c: they use those").size(),
            1u);
}

// ---- The end -----------------------------------------------------------------------------------

TEST_F(MemberTest, AfterATimeoutNothingIsConnectedAndTheOtherRankIsToldWhy) {
  Party zero(0);
  Party one(1);
  meet(zero, one);
  std::string room(2, '.');
  zero.receive({1}, 0, room);
  one.receive({0}, 0, room);
  const auto times_out = [&] { zero.member.wait(*zero.receives, milliseconds(20)); };
  EXPECT_TRUE(throws<TimeoutError>(
      "Timed out waiting 20ms for recv operation to complete: nothing has come from rank 1 (",
      times_out));
  EXPECT_FALSE(zero.is_connected());
  EXPECT_THROW(zero.send(0, room), ::gloo::IoException);
  EXPECT_TRUE(throws<IoError>("rank 0 has given the context up: Timed out waiting 20ms",
                              [&] { one.wait_received(); }));
  EXPECT_FALSE(one.is_connected());
}

TEST_F(MemberTest, CloseFailsTransfersAtBothEnds) {
  Party zero(0);
  Party one(1);
  meet(zero, one);
  std::string room = ".";
  std::string other = ".";
  zero.receive({1}, 0, room);
  one.receive({0}, 0, other);
  zero.member.close(1);
  EXPECT_TRUE(throws<IoError>("the connection to rank 1 was closed by this rank",
                              [&] { zero.wait_received(); }));
  EXPECT_FALSE(zero.is_connected());
  EXPECT_TRUE(throws<IoError>("has left", [&] { one.wait_received(); }));
  EXPECT_FALSE(one.is_connected());
}

TEST_F(MemberTest, LeavingTheCollectivesFailsThoseOfOtherRanks) {
  std::string word = "w";
  std::string room = ".";
  Party zero(0);
  Party one(1);
  meet(zero, one);
  zero.member.leave_collectives();
  EXPECT_EQ(zero.member.context(), nullptr);
  zero.send(0, word);
  one.receive({0}, 0, room);
  EXPECT_EQ(one.wait_received(), 0) << "Gloo's messages still come";
  float sum = 0;
  AllreduceOptions options(one.member.context());
  options.setOutput(&sum, 1);
  EXPECT_TRUE(throws<IoError>("has left", [&] { allreduce(options); }));
}

TEST_F(MemberTest, ATimeoutOfGloosBreaksNezhasContextOnAllRanks) {
  run(3, [](std::shared_ptr<GlooContext>& context) {
    if (context->rank == 0) {
      char byte = 0;
      const auto buffer = context->createUnboundBuffer(&byte, 1);
      buffer->recv(1, 0);
      EXPECT_THROW(buffer->waitRecv(milliseconds(50)), ::gloo::IoException);
      return;
    }
    float sum = 0;
    AllreduceOptions options(glooContext(*context));
    options.setOutput(&sum, 1);
    try {
      allreduce(options);
      ADD_FAILURE() << "rank 0 was not in it";
    } catch (const TimeoutError& error) {
      ADD_FAILURE() << "the reason must be told before the deadline: " << error.what();
    } catch (const ::gloo::IoException& error) {
      EXPECT_NE(std::string(error.what()).find("Timed out waiting 50ms"), std::string::npos)
          << error.what();
    }
  });
}

TEST_F(MemberTest, ATimeoutOfNezhasFailsGloosTransfersOnAllRanks) {
  run(3, [](std::shared_ptr<GlooContext>& context) {
    if (context->rank == 0) {
      float sum = 0;
      AllreduceOptions options(glooContext(*context));
      options.setOutput(&sum, 1);
      options.setTimeout(milliseconds(50));
      EXPECT_THROW(allreduce(options), TimeoutError);
      return;
    }
    char byte = 0;
    const auto buffer = context->createUnboundBuffer(&byte, 1);
    buffer->recv(0, 0);
    try {
      buffer->waitRecv();
      ADD_FAILURE() << "rank 0 has sent nothing";
    } catch (const ::gloo::IoException& error) {
      EXPECT_NE(std::string(error.what()).find("was not complete after 50 ms"), std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace nezha::interop
