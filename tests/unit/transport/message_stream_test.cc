// SPDX-License-Identifier: Apache-2.0
// Streams over two channels that are joined by in-memory links.
#include "transport/message_stream.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/fake_link.h"
#include "tests/unit/transport/virtual_clock.h"

namespace nezha {
namespace {

using testing::FakeNetwork;
using testing::VirtualClock;

constexpr uint64_t kContext = FakeNetwork::kJob.low;
constexpr uint64_t kTag = 77;

// One end of a stream, and what it received.
struct End {
  std::vector<std::string> messages;
  std::vector<absl::Status> failures;
  std::function<void(const std::string&)> on_message = [](const std::string&) {};
  std::unique_ptr<MessageStream> stream;

  explicit End(Channel& channel)
      : stream(std::make_unique<MessageStream>(
            channel, kContext, kTag,
            MessageStream::Callbacks{
                .on_message =
                    [this](const std::string& message) {
                      messages.push_back(message);
                      on_message(message);
                    },
                .on_failed = [this](const absl::Status& why) { failures.push_back(why); }})) {}
};

// Sends arbitrary bytes, as a peer that is not a stream might.
struct RawSender final : Sender {
  void released(uint64_t /*offset*/, size_t /*length*/) override {}
  void settled() override {}
  void failed(const absl::Status& /*why*/) override {}
};

// A message whose bytes depend on its number, so that messages cannot be confused.
std::string text(size_t bytes, uint64_t number) {
  std::string result = absl::StrCat(number, ":");
  for (uint64_t i = result.size(); i < bytes; ++i) {
    result.push_back(static_cast<char>((i * 131 + number * 29 + (i >> 8)) & 0xff));
  }
  result.resize(bytes);
  return result;
}

class MessageStreamTest : public ::testing::Test {
 protected:
  MessageStreamTest() {
    log().set_level(spdlog::level::err);  // the tests break links on purpose
    auto made = Progress::create();
    EXPECT_TRUE(made.ok());
    progress_ = *std::move(made);
    guard_ = std::make_unique<Progress::Guard>(*progress_);
  }
  ~MessageStreamTest() override {
    ends_.clear();
    network_.reset();
    guard_.reset();
  }

  void make_network(uint64_t seed, int rails) {
    ends_.clear();
    network_ = std::make_unique<FakeNetwork>(*progress_, seed, rails);
    for (const int side : {0, 1}) ends_.push_back(std::make_unique<End>(channel(side)));
  }
  // Makes a network whose streams have already been used.
  void connect(uint64_t seed = 1, int rails = 2) {
    make_network(seed, rails);
    for (const auto& end : ends_) end->stream->start();
    for (const int side : {0, 1}) stream(side).send("hello");
    network_->settle_down();
    for (const auto& end : ends_) {
      ASSERT_EQ(end->messages, std::vector<std::string>{"hello"});
      end->messages.clear();
    }
  }
  Channel& channel(int side) { return network_->channel(side); }
  End& end(int side) { return *ends_[static_cast<size_t>(side)]; }
  MessageStream& stream(int side) { return *end(side).stream; }

  // Sends bytes from side 0 under the stream's name, without a stream.
  void send_raw(const std::string& bytes) {
    OutMessage* message = channel(0).open({.context = kContext, .tag = kTag, .total = bytes.size()},
                                          Route(), &raw_sender_);
    channel(0).push(*message, 0, reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    channel(0).settle(*message);
    network_->settle_down();
  }
  // Breaks all connections; nothing in flight arrives.
  void cut_all(bool silent = false) {
    for (const auto& connection : network_->connections()) {
      network_->break_connection(*connection, silent);
      for (auto& each : connection->ends) each.readable = 0;
    }
  }
  void run_timers() {
    Waiter never;
    progress_->wait(*guard_, never, now() + 100);
  }
  void pass(Nanos time) {
    for (const Nanos until = now() + time; now() < until;) {
      network_->settle_down();
      clock_.advance(5 * kMillisecond);
      run_timers();
    }
    network_->settle_down();
  }
  // Lets time pass; returns whether anything is sent.
  bool is_anything_said(Nanos time) {
    for (const Nanos until = now() + time; now() < until;) {
      clock_.advance(5 * kMillisecond);
      run_timers();
      if (network_->step()) return true;
    }
    return false;
  }
  void refuse_connections() {
    network_->allow = [](int, Rail) { return false; };
    network_->refusal = absl::UnavailableError("nobody listens");
  }

  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Progress::Guard> guard_;  // held throughout, so that no other thread drives
  VirtualClock clock_;
  std::unique_ptr<FakeNetwork> network_;
  std::vector<std::unique_ptr<End>> ends_;
  RawSender raw_sender_;
};

// ---- What is sent comes
// --------------------------------------------------------------------------

TEST_F(MessageStreamTest, MessagesOfAnyLengthComeInOrderBothWays) {
  for (uint64_t seed = 0; seed < 20 && !HasFailure(); ++seed) {
    connect(seed, 1 + static_cast<int>(seed % 3));
    std::vector<std::string> sent[2];
    for (uint64_t i = 0; i < 60; ++i) {
      for (const int side : {0, 1}) {
        const size_t bytes = i % 20 == 7 ? 1 + network_->below(MessageStream::kMaxBytes)
                                         : 1 + network_->below(i % 3 == 0 ? 60'000 : 60);
        sent[side].push_back(text(bytes, 2 * i + static_cast<uint64_t>(side)));
        stream(side).send(sent[side].back());
      }
      for (uint64_t steps = network_->below(6); steps > 0; --steps) network_->step();
      progress_->run_deferred();
    }
    network_->settle_down();
    for (const int side : {0, 1}) {
      EXPECT_TRUE(end(side).messages == sent[1 - side])
          << "seed " << seed << ": " << end(side).messages.size() << " messages";
      EXPECT_TRUE(end(side).failures.empty());
      EXPECT_EQ(channel(side).charged(), channel(1 - side).consumed());
    }
  }
}

TEST_F(MessageStreamTest, TheShortestAndTheLongestMessagesCome) {
  connect();
  const std::vector<std::string> sent{"x", text(MessageStream::kMaxBytes, 1), "y"};
  for (const std::string& message : sent) stream(0).send(message);
  network_->settle_down();
  EXPECT_TRUE(end(1).messages == sent);
}

TEST_F(MessageStreamTest, EarlyMessagesAreDeliveredAtTheStart) {
  make_network(1, 2);
  stream(0).start();
  for (const char* message : {"a", "b", "c"}) stream(0).send(message);
  network_->settle_down();
  EXPECT_TRUE(end(1).messages.empty());
  stream(1).start();
  EXPECT_EQ(end(1).messages, (std::vector<std::string>{"a", "b", "c"}));
}

// A peer must not be able to exhaust the stack of the thread that drives.
TEST_F(MessageStreamTest, ManyMessagesThatWaitAreNotHandledOnTopOfEachOther) {
  constexpr int kMessages = 900;
  make_network(1, 1);
  stream(0).start();
  for (uint64_t i = 0; i < kMessages; ++i) stream(0).send(text(20, i));
  network_->settle_down();
  uintptr_t lowest = UINTPTR_MAX;
  uintptr_t highest = 0;
  end(1).on_message = [&](const std::string&) {
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    lowest = std::min(lowest, here);
    highest = std::max(highest, here);
  };
  stream(1).start();
  ASSERT_GE(end(1).messages.size(), kMessages / 2) << "the credit is for more than that";
  EXPECT_LT(highest - lowest, 16u << 10);
  network_->settle_down();
  ASSERT_EQ(end(1).messages.size(), kMessages);
  for (uint64_t i = 0; i < kMessages; ++i) EXPECT_EQ(end(1).messages[i], text(20, i));
}

TEST_F(MessageStreamTest, AMessageMayBeAnsweredFromItsCallback) {
  connect();
  end(1).on_message = [&](const std::string& message) { stream(1).send("re " + message); };
  for (const char* message : {"a", "b"}) stream(0).send(message);
  network_->settle_down();
  EXPECT_EQ(end(0).messages, (std::vector<std::string>{"re a", "re b"}));
}

TEST_F(MessageStreamTest, ADeadLinkLosesAndRepeatsNoMessage) {
  for (uint64_t seed = 0; seed < 30 && !HasFailure(); ++seed) {
    connect(seed, 2);
    std::vector<std::string> sent;
    for (uint64_t i = 0; i < 40; ++i) {
      sent.push_back(text(i % 4 == 0 ? 100'000 : 1 + i, i));
      stream(0).send(sent.back());
      for (uint64_t steps = network_->below(8); steps > 0; --steps) network_->step();
      progress_->run_deferred();
      if (i % 13 == 5) network_->break_some(/*silent=*/false);
    }
    pass(kSecond);
    EXPECT_TRUE(end(1).messages == sent) << "seed " << seed;
    EXPECT_TRUE(end(0).failures.empty() && end(1).failures.empty());
  }
}

// ---- The end -----------------------------------------------------------------------------------

TEST_F(MessageStreamTest, FailsWhenThePeerClosesTheContextThoughNobodyWaits) {
  connect();
  end(1).stream.reset();
  channel(1).leave(FakeNetwork::kJob);
  pass(kSecond);
  ASSERT_FALSE(end(0).failures.empty());
  EXPECT_TRUE(absl::IsUnavailable(end(0).failures[0])) << end(0).failures[0];
  EXPECT_NE(end(0).failures[0].message().find("side 1 has left"), absl::string_view::npos);
  stream(0).send("too late");
  network_->settle_down();
  EXPECT_TRUE(channel(0).drained()) << "nothing was sent";
}

TEST_F(MessageStreamTest, FailsWithTheChannelAndLetsGoOfWhatItSent) {
  connect();
  stream(0).send(text(MessageStream::kMaxBytes, 1));
  stream(0).send("and one more");
  cut_all();
  refuse_connections();
  pass(kSecond);
  ASSERT_TRUE(channel(0).failed());
  ASSERT_FALSE(end(0).failures.empty());
  for (const absl::Status& failure : end(0).failures) {
    EXPECT_NE(failure.message().find("nobody listens"), absl::string_view::npos) << failure;
  }
  const size_t failures = end(0).failures.size();
  stream(0).send("too late");
  stream(0).set_awaited(true);
  pass(kSecond);
  EXPECT_EQ(end(0).failures.size(), failures);
}

TEST_F(MessageStreamTest, AStreamOfAChannelThatHasFailedFails) {
  connect();
  stream(0).send("x");
  cut_all();
  refuse_connections();
  pass(kSecond);
  ASSERT_TRUE(channel(0).failed());
  ends_[0] = std::make_unique<End>(channel(0));
  stream(0).start();
  network_->settle_down();
  EXPECT_FALSE(end(0).failures.empty());
}

TEST_F(MessageStreamTest, AnAnnouncementOfAnImpossibleLengthIsAnError) {
  for (const uint64_t bytes :
       {uint64_t{0}, MessageStream::kMaxBytes + 1, ~uint64_t{0}, uint64_t{1} << 63}) {
    connect();
    send_raw(wire::encode_number(bytes));
    ASSERT_EQ(end(1).failures.size(), 1u) << bytes;
    EXPECT_TRUE(absl::IsInvalidArgument(end(1).failures[0])) << end(1).failures[0];
    EXPECT_NE(end(1).failures[0].message().find(absl::StrCat(" ", bytes, " bytes")),
              absl::string_view::npos)
        << end(1).failures[0];
    EXPECT_TRUE(end(1).messages.empty());
    // Later messages are not delivered.
    send_raw(wire::encode_number(1));
    EXPECT_EQ(end(1).failures.size(), 1u);
    stream(1).set_awaited(true);
    stream(1).send("nor is anything sent");
    network_->settle_down();
    EXPECT_TRUE(end(0).messages.empty());
  }
}

TEST_F(MessageStreamTest, WhatIsNotOfTheAnnouncedLengthIsAnError) {
  connect();
  send_raw(wire::encode_number(5));
  send_raw("abcd");
  ASSERT_EQ(end(1).failures.size(), 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(end(1).failures[0])) << end(1).failures[0];
  EXPECT_TRUE(end(1).messages.empty());

  connect();
  send_raw("seven b");  // its length is missing
  ASSERT_EQ(end(1).failures.size(), 1u);
  EXPECT_TRUE(end(1).messages.empty());
}

// Either end may go at any point of a conversation.
TEST_F(MessageStreamTest, IsDestroyedWithMessagesUnderWay) {
  for (uint64_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
    connect(seed, 2);
    for (uint64_t i = 0; i < 10; ++i) {
      for (const int side : {0, 1}) stream(side).send(text(i == 3 ? 700'000 : 1 + i * i * 900, i));
    }
    for (uint64_t steps = network_->below(120); steps > 0; --steps) {
      network_->step();
      if (network_->one_in(2)) progress_->run_deferred();
    }
    const int first = static_cast<int>(seed % 2);
    const size_t heard = end(first).messages.size();
    end(first).stream.reset();
    if (network_->one_in(2)) network_->break_some(/*silent=*/false);
    pass(kSecond / 4);
    EXPECT_EQ(end(first).messages.size(), heard);
    for (size_t i = 0; i < end(1 - first).messages.size(); ++i) {
      EXPECT_TRUE(end(1 - first).messages[i] == text(i == 3 ? 700'000 : 1 + i * i * 900, i));
    }
    channel(first).leave(FakeNetwork::kJob);
    pass(kSecond / 4);
    EXPECT_FALSE(end(1 - first).failures.empty());
    EXPECT_TRUE(channel(first).drained());
    ends_.clear();
    channel(1 - first).leave(FakeNetwork::kJob);
    pass(kSecond / 4);
    for (const int side : {0, 1}) EXPECT_EQ(network_->side(side).pool().bytes_in_use(), 0u);
  }
}

// ---- Who waits ---------------------------------------------------------------------------------

TEST_F(MessageStreamTest, LinksAreLookedAfterWhileAMessageIsAwaited) {
  connect();
  pass(kSecond);  // everything is acknowledged
  EXPECT_FALSE(is_anything_said(kSecond));
  stream(0).set_awaited(true);
  EXPECT_TRUE(is_anything_said(kSecond));
  stream(0).set_awaited(false);
  pass(kSecond);
  EXPECT_FALSE(is_anything_said(kSecond));
}

TEST_F(MessageStreamTest, APeerThatDiesIsNoticedSoonerIfItsMessageIsAwaited) {
  connect();
  cut_all();
  refuse_connections();
  pass(300 * kMillisecond);
  EXPECT_TRUE(end(0).failures.empty()) << "nobody awaited it";
  stream(0).set_awaited(true);
  pass(50 * kMillisecond);
  ASSERT_FALSE(end(0).failures.empty());
  EXPECT_NE(end(0).failures[0].message().find("side 1 is gone"), absl::string_view::npos)
      << end(0).failures[0];
}

TEST_F(MessageStreamTest, AwaitingLastsUntilItIsRevoked) {
  connect();
  stream(0).set_awaited(true);
  stream(1).send("one");
  network_->settle_down();
  stream(0).set_awaited(false);
  cut_all();
  refuse_connections();
  pass(300 * kMillisecond);
  EXPECT_TRUE(end(0).failures.empty());

  connect();
  stream(0).set_awaited(true);
  stream(1).send("one");
  network_->settle_down();
  cut_all();
  refuse_connections();
  pass(300 * kMillisecond);
  EXPECT_FALSE(end(0).failures.empty());
}

}  // namespace
}  // namespace nezha
