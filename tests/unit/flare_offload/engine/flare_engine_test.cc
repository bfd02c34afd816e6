// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/engine/flare_engine.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/unit/flare_offload/engine/engine_ranks.h"
#include "transport/message_stream.h"

namespace nezha::flare {
namespace {

class FlareEngineTest : public EngineRanks {};

// ---- The session -------------------------------------------------------------------------------

TEST_F(FlareEngineTest, SaysWhatItLacksWhenItIsOpened) {
  EngineUser user;
  const auto why_not = [&](const FlareOptions& options) {
    const auto engine = FlareEngine::open(stage_.progress(), options, user.group, FakeNetwork::kJob,
                                          log_of_rank(0, 1), user);
    return std::string(engine.status().message());
  };
  FlareOptions other = options();
  other.interface = "no-such-card";
  EXPECT_TRUE(says(why_not(other), "no-such-card"));
  other = options();
  other.address = "192.0.2.1";
  EXPECT_TRUE(says(why_not(other), "192.0.2.1"));
  setenv("NEZHA_FLARE_SECRET", "/no/such/file", 1);
  EXPECT_TRUE(says(why_not(options()), "/no/such/file"));
  unsetenv("NEZHA_FLARE_SECRET");
  EXPECT_TRUE(says(why_not(options()), "NEZHA_FLARE_SECRET is not set"));
}

TEST_F(FlareEngineTest, IsUpOnceAllRanksHaveTheSession) {
  answer_ = [&](const message::Join& join) -> std::optional<message::Message> {
    if (join.rank == 2) return std::nullopt;
    return grant_to(join);
  };
  ASSERT_NO_FATAL_FAILURE(make(3, options()));
  connect(1);
  for (int i = 0; i < 100; ++i) stage_.round();
  EXPECT_EQ(manager_.connections(), 0U) << "rank 0 does not know rank 2 yet";
  connect(2);
  ASSERT_TRUE(stage_.until([&] { return manager_.count<message::Join>() == 3; }));
  for (int i = 0; i < 500; ++i) stage_.round();
  EXPECT_FALSE(is_any_up()) << "rank 2 has no session yet";
  const auto& [peer, join] = asked_[1][2];
  peer->send(grant_to(join));
  ASSERT_TRUE(stage_.until([&] { return all_up(); }));
  for (const auto& user : users_) EXPECT_EQ(user->ups, 1);
}

TEST_F(FlareEngineTest, GivesTheSessionBackAndTriesAgainIfOneRankGetsNone) {
  answer_ = [&](const message::Join& join) -> std::optional<message::Message> {
    const bool fails = join.rank == 1 && join.request.attempt <= 2;
    if (fails) return message::Rejected{join.request, "no room for you"};
    return grant_to(join);
  };
  ASSERT_NO_FATAL_FAILURE(make(3, options()));
  connect_all();
  ASSERT_TRUE(stage_.until([&] { return manager_.count<message::Leave>() == 2; }));
  EXPECT_EQ(log_.take("rank 1: no room for you").size(), 1U);
  EXPECT_FALSE(is_any_up());
  ASSERT_TRUE(stage_.until([&] { return all_up(); }, 10 * kMillisecond));
  for (const auto& user : users_) EXPECT_EQ(user->ups, 1);
  ASSERT_EQ(join_times_.size(), 3U);
  EXPECT_GT(join_times_[2] - join_times_[1], join_times_[1] - join_times_[0]);
}

TEST_F(FlareEngineTest, DoesNotTakeASessionOfAnotherNumberOfStreams) {
  answer_ = [&](const message::Join& join) -> std::optional<message::Message> {
    message::Granted granted = grant_to(join);
    if (join.rank == 1 && join.request.attempt == 1) granted.streams = 1;
    return granted;
  };
  ASSERT_NO_FATAL_FAILURE(make(2, options()));
  connect_all();
  ASSERT_TRUE(stage_.until([&] { return all_up(); }, 10 * kMillisecond));
  EXPECT_EQ(log_.take("1 streams instead of the 4").size(), 1U);
  EXPECT_EQ(join_times_.size(), 2U);
}

TEST_F(FlareEngineTest, AsksForNoMulticastAfterAGroupThatItCannotJoin) {
  const UdpPort other = *UdpPort::open(*Address::parse_host("0.0.0.0"), kMaxDatagram);
  Address group = *Address::parse("239.192.7.78:1");
  group.set_port(net::local_address(other.fd())->port());  // which is taken
  answer_ = [&](const message::Join& join) -> std::optional<message::Message> {
    message::Granted granted = grant_to(join);
    if (join.request.attempt == 1) granted.group = group;
    return granted;
  };
  ASSERT_NO_FATAL_FAILURE(make(2, options()));
  connect_all();
  ASSERT_TRUE(stage_.until([&] { return all_up(); }, 10 * kMillisecond));
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(asked_[1][rank].second.multicast);
    EXPECT_FALSE(asked_[2][rank].second.multicast);
  }
}

TEST_F(FlareEngineTest, ALossIsToldOnceAndTheSessionComesBack) {
  ASSERT_NO_FATAL_FAILURE(make_up(2));
  ASSERT_NO_FATAL_FAILURE(run_on_all(sum_of(3, 7), 100));
  ASSERT_NO_FATAL_FAILURE(lose_session());
  for (const auto& user : users_) {
    EXPECT_FALSE(user->engine->is_up());
    EXPECT_EQ(user->engine->failures(), 1U);
    const auto late = user->start(sum_of(4), 1);
    EXPECT_EQ(late->task->poll(), Task::State::kLost);
    // Another rank may lack any part of the last result.
    std::vector<uint32_t> kept(100);
    for (const Retained& part : user->engine->take_retained()) {
      EXPECT_EQ(part.tag, 3U);
      EXPECT_EQ(part.ordinal, 7U);
      std::memcpy(reinterpret_cast<std::byte*>(kept.data()) + part.offset, part.bytes.data(),
                  part.bytes.size());
    }
    EXPECT_EQ(kept, total_of(100, 2));
    EXPECT_TRUE(user->engine->take_retained().empty());
  }
  ASSERT_TRUE(stage_.until([&] { return all_up(); }, 10 * kMillisecond));
  ASSERT_NO_FATAL_FAILURE(run_on_all(sum_of(3, 8), 100));
  for (const auto& call : calls_) EXPECT_EQ(call->out, total_of(100, 2));
  for (const auto& user : users_) {
    EXPECT_EQ(user->ups, 2);
    EXPECT_EQ(user->downs, 1);
    EXPECT_EQ(user->engine->failures(), 1U);
  }
}

TEST_F(FlareEngineTest, IsLostWhenTheSwitchFallsSilent) {
  ASSERT_NO_FATAL_FAILURE(make_up(2));
  for (uint32_t stream = 0; stream < 4; ++stream) switch_->remove(kSessionsOfAttempt + stream);
  for (const auto& user : users_) calls_.push_back(user->start(sum_of(1), 100));
  ASSERT_TRUE(stage_.until([&] { return all_down(); }, 10 * kMillisecond));
  EXPECT_EQ(log_.take("has said nothing").size(), 2U);
  for (const auto& call : calls_) EXPECT_TRUE(call->task->freeze().empty());
}

TEST_F(FlareEngineTest, AsksForNoSessionUntilAllContextsHaveRecovered) {
  ASSERT_NO_FATAL_FAILURE(make_up(2));
  for (const auto& user : users_) user->recovers = true;
  ASSERT_NO_FATAL_FAILURE(lose_session());
  for (const auto& user : users_) user->engine->take_retained();
  const Nanos lost = now();
  ASSERT_TRUE(stage_.until([&] { return now() > lost + 5 * kSecond; }, 50 * kMillisecond));
  EXPECT_TRUE(log_.take("not given up").empty()) << "rank 0 has not recovered, but tries";
  user(0).recovers = false;
  ASSERT_TRUE(stage_.until([&] { return !log_.take("rank 1: this rank has not given up").empty(); },
                           50 * kMillisecond));
  EXPECT_FALSE(asked_[2].contains(1));
  user(1).recovers = false;
  ASSERT_TRUE(stage_.until([&] { return all_up(); }, 50 * kMillisecond));
}

TEST_F(FlareEngineTest, EachRankWarnsOfAnotherSecretOnceAMinute) {
  const FakeService stranger(stage_, SecureStream::Service::kManager, test_secret());
  FlareOptions other = options();
  other.manager = stranger.address();
  ASSERT_NO_FATAL_FAILURE(make(2, other));
  connect_all();
  size_t warnings = 0;
  size_t tries = 0;
  const auto look = [&] {
    for (const std::string& line : log_.take()) {
      if (line.find("not available: the manager at") != std::string::npos) ++warnings;
      if (line.find("tries again") != std::string::npos) ++tries;
    }
    return tries >= 3;
  };
  ASSERT_TRUE(stage_.until(look, 10 * kMillisecond));
  EXPECT_EQ(warnings, 2U);
}

// ---- Operations --------------------------------------------------------------------------------

TEST_F(FlareEngineTest, AllRanksGetTheResults) {
  ASSERT_NO_FATAL_FAILURE(make_up(3));
  ASSERT_NO_FATAL_FAILURE(run_on_all(sum_of(1), 100));
  for (const auto& call : calls_) EXPECT_EQ(call->out, total_of(100, 3));
  Operation op = sum_of(2);
  op.collective = Collective::kReduce;
  op.root = 1;
  ASSERT_NO_FATAL_FAILURE(run_on_all(op, 100));
  EXPECT_EQ(calls_[1]->out, total_of(100, 3));
  op = sum_of(3);
  op.collective = Collective::kBroadcast;
  op.root = 2;
  ASSERT_NO_FATAL_FAILURE(run_on_all(op, 100));
  for (const auto& call : calls_) EXPECT_EQ(call->out, calls_[2]->in);
  for (const auto& user : users_) {
    EXPECT_EQ(user->engine->counters().bytes_sent, 3U * 400);
    EXPECT_EQ(user->engine->counters().bytes_received, 3U * 400);
  }
}

TEST_F(FlareEngineTest, ManyOperationsOfATagFollowEachOther) {
  ASSERT_NO_FATAL_FAILURE(make_up(2));
  for (const int rank : {1, 0}) {
    for (uint64_t ordinal = 1; ordinal <= 20; ++ordinal) {
      calls_.push_back(user(rank).start(sum_of(5, ordinal), 10 * ordinal));
    }
  }
  ASSERT_NO_FATAL_FAILURE(await_calls());
  for (const auto& call : calls_) EXPECT_EQ(call->out, total_of(call->in.size(), 2));
}

// Rank 1 starts an operation and waits for it, and rank 0 has started others before.
TEST_F(FlareEngineTest, OperationsThatWaitForARankDoNotHoldUpThoseThatAllHaveStarted) {
  FlareOptions few = options();
  few.streams = 2;
  ASSERT_NO_FATAL_FAILURE(make_up(2, few));
  std::vector<std::unique_ptr<EngineCall>> early;
  for (const uint32_t tag : {1U, 2U, 3U, 4U}) early.push_back(user(0).start(sum_of(tag), 10));
  calls_.push_back(std::move(early.back()));
  early.pop_back();
  calls_.push_back(user(1).start(sum_of(4), 10));
  EXPECT_TRUE(says(calls_[0]->task->describe(), "it waits for a stream"));
  EXPECT_TRUE(says(calls_[1]->task->describe(), "rank 0 has not said which stream"));
  stage_.pass(15 * kMillisecond);  // then rank 1 tells rank 0
  ASSERT_NO_FATAL_FAILURE(await_calls());
  for (auto& call : early) {
    EXPECT_FALSE(call->is_over);
    calls_.push_back(std::move(call));
  }
  for (const uint32_t tag : {3U, 2U, 1U}) calls_.push_back(user(1).start(sum_of(tag), 10));
  stage_.pass(15 * kMillisecond);
  ASSERT_NO_FATAL_FAILURE(await_calls());
}

TEST_F(FlareEngineTest, AnEmptySliceIsDoneAtOnceAndWithoutASession) {
  ASSERT_NO_FATAL_FAILURE(make(2, options()));
  const auto call = user(1).start(sum_of(1), 1, {.begin = 0, .end = 0});
  EXPECT_EQ(call->task->poll(), Task::State::kDone);
  const auto other = user(1).start(sum_of(2), 1);
  EXPECT_EQ(other->task->poll(), Task::State::kLost);
}

TEST_F(FlareEngineTest, RanksThatCallDifferentOperationsOfATagAreTold) {
  ASSERT_NO_FATAL_FAILURE(make_up(2));
  calls_.push_back(user(0).start(sum_of(1), 10));
  Operation other = sum_of(1);
  other.collective = Collective::kBroadcast;
  calls_.push_back(user(1).start(other, 10));
  for (const int rank : {0, 1}) {
    const EngineCall& call = *calls_[static_cast<size_t>(rank)];
    ASSERT_TRUE(stage_.until([&] { return call.is_over; }));
    EXPECT_EQ(call.task->poll(), Task::State::kFailed);
    EXPECT_TRUE(says(call.task->status().message(), "broadcast from rank 0"));
  }
}

// ---- The ranks ---------------------------------------------------------------------------------

TEST_F(FlareEngineTest, NothingWaitsForAStreamFromARank0ThatHasLeft) {
  ASSERT_NO_FATAL_FAILURE(make_up(2));
  const auto waiting = user(1).start(sum_of(1), 10);
  leave(0);
  ASSERT_TRUE(stage_.until([&] { return waiting->is_over; }, kMillisecond));
  const auto later = user(1).start(sum_of(2), 10);
  for (const EngineCall* call : {waiting.get(), later.get()}) {
    EXPECT_EQ(call->task->poll(), Task::State::kFailed);
    EXPECT_TRUE(says(call->task->status().message(), "side 0 has left"));
  }
}

TEST_F(FlareEngineTest, AnOperationFailsWhoseSwitchWaitsForARankThatHasLeft) {
  ASSERT_NO_FATAL_FAILURE(make_up(2));
  const auto call = user(0).start(sum_of(1), 10);
  for (int i = 0; i < 50; ++i) stage_.round();
  EXPECT_TRUE(says(call->task->describe(), "0 of 1 blocks"));
  leave(1);
  const auto pendings = [&] {  // of the first stream's session
    const std::string text = switch_->statistics();
    const std::string name = "\"pendings\": ";
    return std::atoi(text.c_str() + text.find(name) + name.size());
  };
  for (int asked = 0; asked < 10 && !call->is_over; ++asked) {
    const int before = pendings();
    stage_.pass(110 * kMillisecond);  // then the block is sent again
    ASSERT_TRUE(stage_.until([&] { return call->is_over || pendings() > before; }));
    for (int i = 0; i < 50; ++i) stage_.round();
  }
  ASSERT_TRUE(call->is_over);
  EXPECT_EQ(call->task->poll(), Task::State::kFailed);
  EXPECT_TRUE(says(call->task->status().message(), "side 1 has left"));
}

TEST_F(FlareEngineTest, TheContextEndsWhenARankDoesNotFollowTheProtocol) {
  struct Case {
    int rank;  // that gets the message
    std::string bytes;
    const char* why;
  };
  for (const Case& it :
       {Case{0, "\x7fwhat", "malformed"},
        Case{0, rank_message::encode(rank_message::Up{1}), "not for rank 0"},
        Case{1, rank_message::encode(rank_message::Joined{1, ""}), "not for rank 1"}}) {
    users_.clear();
    networks_.clear();
    ASSERT_NO_FATAL_FAILURE(make(2, options()));
    const int other = 1 - it.rank;
    MessageStream stream(network_of(1).channel(other), FakeNetwork::kJob.low,
                         (uint64_t{1} << 63) | 1, {[](const auto&) {}, [](const auto&) {}});
    stream.start();
    user(it.rank).engine->connect(other, network_of(1).channel(it.rank));
    stream.send(it.bytes);
    ASSERT_TRUE(stage_.until([&] { return !user(it.rank).failure.ok(); }));
    const std::string why(user(it.rank).failure.message());
    EXPECT_TRUE(says(why, absl::StrCat("rank ", other, " does not follow the protocol")));
    EXPECT_TRUE(says(why, it.why));
    user(it.rank).engine.reset();
  }
}

}  // namespace
}  // namespace nezha::flare
