// SPDX-License-Identifier: Apache-2.0
// How a channel judges rails that do not lead to its peer: whether the peer is gone, what the log
// reports, and since when a rail is missing.
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/transport/channel_script.h"
#include "tests/unit/transport/fake_link.h"
#include "tests/unit/transport/log_lines.h"
#include "transport/outage.h"
#include "transport/refusals.h"

namespace nezha {
namespace {

using testing::ChannelScript;
using testing::FakeConnection;
using testing::FakeLink;
using testing::FakeNetwork;
using testing::LogLines;
using testing::TestReceiver;
using testing::TestSender;

class Unreachable : public ChannelScript {
 protected:
  using Way = std::function<bool(int side, Rail rail)>;

  static absl::Status refused() { return absl::UnavailableError("nobody listens"); }
  static absl::Status unanswered() { return absl::DeadlineExceededError("no answer"); }

  // Makes attempts that `is_open` does not allow end in this error.
  void close(
      const absl::Status& why, Way is_open = [](int, Rail) { return false; }) {
    network_->refusal = why;
    network_->allow = std::move(is_open);
  }
  // Rail 0 fails with one error, rail 1 with the other.
  void close_both(const absl::Status& first, const absl::Status& second) {
    network_->allow = [this, first, second](int, Rail rail) {
      network_->refusal = rail == 0 ? first : second;
      return false;
    };
  }
  void build(int rails) { network_ = std::make_unique<FakeNetwork>(*progress_, 1, rails); }
  // Connects the sides with links that only one of them makes.
  void connect_from(int side, int rails) {
    build(rails);
    close(refused(), [side](int by, Rail) { return by == side; });
    send(side, 90, 1);
    receive(1 - side, 90, 1);
    network_->settle_down();
    ASSERT_EQ(std::popcount(channel(0).up()), rails);
  }
  bool says(const std::string& words) {
    return channel(0).failure().message().find(words) != absl::string_view::npos;
  }
};

// ---- Whether the peer is gone ------------------------------------------------------------------

// The peer may be behind a firewall that lets it connect to others.
TEST_F(Unreachable, APeerThatRefusesBeforeItHasConnectedIsWaitedFor) {
  build(2);
  close(refused());
  TestSender& sender = send(0, 1, 1000);
  pass(Refusals::kHopeless - kSecond);
  ASSERT_FALSE(channel(0).failed()) << channel(0).failure();
  close(refused(), [](int side, Rail) { return side == 1; });
  TestReceiver& receiver = receive(1, 1, 1000);
  send(1, 2, 1000);
  pass(kSecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
}

TEST_F(Unreachable, FailsIfEachRailRefusesForLong) {
  build(2);
  close(refused());
  const TestReceiver& receiver = receive(0, 1, 10);
  pass(Refusals::kHopeless - kSecond);
  EXPECT_FALSE(receiver.over());
  pass(4 * kSecond);
  EXPECT_TRUE(absl::IsUnavailable(receiver.failure)) << receiver.failure;
  EXPECT_TRUE(says("side 1") && says("a: nobody listens") && says("b: nobody listens"))
      << channel(0).failure();
  EXPECT_TRUE(says("firewall")) << channel(0).failure();
  EXPECT_FALSE(says("gone")) << channel(0).failure();
}

TEST_F(Unreachable, RefusalsAfterAnotherOutcomeBeginAnew) {
  build(1);
  close(refused());
  receive(0, 1, 10);
  pass(kSecond);
  close(unanswered());
  pass(4 * kSecond);
  close(refused());
  pass(Refusals::kHopeless - 3 * kSecond);
  EXPECT_FALSE(channel(0).failed()) << channel(0).failure();
  pass(2 * Refusals::kHopeless);
  EXPECT_TRUE(channel(0).failed());
}

TEST_F(Unreachable, ASilentRailKeepsTheChannelWaiting) {
  build(2);
  close_both(refused(), unanswered());
  receive(0, 1, 10);
  pass(2 * Refusals::kHopeless);
  EXPECT_FALSE(channel(0).failed()) << channel(0).failure();
}

TEST_F(Unreachable, ARailThatHasNeverBeenUpIsNoEvidence) {
  const auto only_first = [](int, Rail rail) { return rail == 0; };
  for (const bool is_gone : {true, false}) {
    build(2);
    close(is_gone ? unanswered() : refused(), only_first);
    send(0, 90, 1);
    receive(1, 90, 1);
    pass(kSecond);
    ASSERT_EQ(channel(0).up(), 1u);
    receive(0, 1, 10);
    cut_all();
    close_both(is_gone ? refused() : unanswered(), is_gone ? unanswered() : refused());
    pass(2 * kSecond);
    EXPECT_EQ(channel(0).failed(), is_gone) << channel(0).failure();
    EXPECT_EQ(says("side 1 is gone"), is_gone) << channel(0).failure();
    network_.reset();
  }
}

// A process that ends closes all its connections at once, so an earlier close shows nothing.
TEST_F(Unreachable, ARailThatWasClosedLongAgoIsNoEvidence) {
  connect(2);
  receive(0, 1, 10);
  close(refused(), [](int, Rail rail) { return rail == 0; });
  for (const auto& connection : network_->connections()) {
    const FakeLink* link = connection->ends[0].link;
    if (link != nullptr && link->rail() == 1) network_->break_connection(*connection, false);
  }
  pass(5 * kSecond);
  ASSERT_EQ(channel(0).up(), 1u);
  channel(0).on_carrier(0, false);
  EXPECT_FALSE(channel(0).failed()) << channel(0).failure();
  channel(0).on_carrier(0, true);
  pass(kSecond);
  EXPECT_FALSE(channel(0).failed()) << channel(0).failure();
  EXPECT_EQ(channel(0).up(), 1u);
}

// Only by connecting again does the peer differ from a process that has ended.
TEST_F(Unreachable, APeerThatHasMadeAllLinksItselfIsGivenTimeToMakeThemAgain) {
  for (const bool is_gone : {true, false}) {
    connect_from(1, 2);
    receive(0, 1, 10);
    cut_all();
    close(refused());
    pass(Refusals::kTimeToConnect / 2);
    ASSERT_FALSE(channel(0).failed()) << channel(0).failure();
    if (!is_gone) close(refused(), [](int side, Rail) { return side == 1; });
    pass(kSecond);
    EXPECT_EQ(says("side 1 is gone"), is_gone) << channel(0).failure();
    EXPECT_EQ(channel(0).up() != 0, !is_gone);
    network_.reset();
  }
}

// The peer need not have noticed, and may be unable to accept links.
TEST_F(Unreachable, LinksThatThisSideGaveUpAreNoEvidence) {
  connect_from(1, 2);
  receive(0, 1, 10);
  network_->ends_vanish = true;
  close(refused());
  for (const Rail rail : {0, 1}) channel(0).on_carrier(rail, /*up=*/false);
  pass(Refusals::kHopeless - kSecond);
  EXPECT_FALSE(channel(0).failed()) << channel(0).failure();
  close(refused(), [](int side, Rail) { return side == 1; });
  network_->end_silence();
  pass(5 * kSecond);
  EXPECT_NE(channel(0).up(), 0u);
}

// The peer has accepted the connection; this end does not know it yet.
TEST_F(Unreachable, AGoodbyeGoesByALinkThatIsOnlyBeingMade) {
  build(1);
  network_->hold = [](Rail) { return true; };
  send(1, 1, 10);
  receive(0, 1, 10);
  channel(1).say_goodbye();
  EXPECT_FALSE(channel(1).drained());
  network_->hold = [](Rail) { return false; };
  pass(10 * kMillisecond);
  ASSERT_EQ(channel(0).up(), 1u);
  receive(0, 2, 10);
  cut_all();
  close(refused());
  pass(kSecond);
  EXPECT_TRUE(channel(0).failed());
  EXPECT_TRUE(says("has left")) << channel(0).failure();
}

TEST_F(Unreachable, APeerThatHasGivenThisProcessUpIsNotCalledGone) {
  connect(1);
  receive(0, 1, 10);
  cut_all();
  close(absl::PermissionDeniedError("it has given this process up"));
  pass(kSecond);
  EXPECT_TRUE(channel(0).failed());
  EXPECT_TRUE(says("side 1")) << channel(0).failure();
  EXPECT_FALSE(says("gone")) << channel(0).failure();
}

// ---- What the log tells ------------------------------------------------------------------------

class Warnings : public Unreachable {
 protected:
  // Side 0 sends a message now and then.
  void converse(Nanos time) {
    for (const Nanos end = now() + time; now() < end;) {
      ++tag_;
      receive(1, tag_, 10);
      send(0, tag_, 10);
      pass(100 * kMillisecond);
    }
  }
  // The warnings of side 0.
  std::vector<std::string> warnings() { return log_.take("side 1"); }
  bool is_of_outage(const std::string& line, const std::string& reason) {
    return line.find("no link to side 1 on b") != std::string::npos &&
           line.find(reason) != std::string::npos;
  }

  // Side 0 sends by rail b, which drops large frames to side 1 until the rail is closed.
  void lose_large_frames() {
    receive(1, 1, kLarge);
    FakeConnection* connection = network_->connection(1);
    ASSERT_NE(connection, nullptr);
    network_->break_connection(*connection, /*silent=*/true);
    for (auto& end : connection->ends) end.readable = 0;
    connection->ends[0].unanswered = 1;  // side 1's machine acknowledges small frames
    close(refused(), [](int, Rail rail) { return rail == 0; });
    send(0, 1, kLarge);
    pass(kSecond);
  }
  void pass_by_b(int from, size_t bytes) {
    ++tag_;
    receive(1 - from, tag_, bytes);
    send(from, tag_, bytes, rail_bit(1));
    pass(50 * kMillisecond);
  }

  LogLines log_;
  uint64_t tag_ = 1000;
};

TEST_F(Warnings, ReportARailThatStaysDownAndThenComesUp) {
  build(2);
  close(refused(), [](int, Rail rail) { return rail == 0; });
  converse(kSecond);
  EXPECT_EQ(warnings(), std::vector<std::string>()) << "it may be coming";
  EXPECT_EQ(channel(0).long_missing(), 0u);
  EXPECT_EQ(channel(0).missing_since(1), 0);
  converse(30 * kSecond);
  const std::vector<std::string> lines = warnings();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(is_of_outage(lines[0], "nobody listens")) << lines[0];
  EXPECT_EQ(channel(0).long_missing(), rail_bit(1));
  EXPECT_NEAR(static_cast<double>(now() - channel(0).missing_since(1)) / kSecond, 31, 0.5);
  EXPECT_EQ(channel(0).why_missing(1), "side 1: nobody listens");
  close(absl::OkStatus(), [](int, Rail) { return true; });
  converse(5 * kSecond);
  EXPECT_EQ(warnings(), std::vector<std::string>{"warning: the link to side 1 on b is up"});
  EXPECT_EQ(channel(0).long_missing(), 0u);
  EXPECT_EQ(channel(0).missing_since(1), 0);
}

TEST_F(Warnings, ReportAnAttemptThatTakesLong) {
  build(2);
  close(absl::OkStatus(), [](int, Rail rail) { return rail == 0; });
  network_->hold = [](Rail rail) { return rail == 1; };
  converse(4 * kSecond);
  const std::vector<std::string> lines = warnings();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(is_of_outage(lines[0], "no answer")) << lines[0];
}

TEST_F(Warnings, ReportALostLinkAndItsReturn) {
  connect(2);
  converse(kSecond);
  EXPECT_EQ(warnings(), std::vector<std::string>());
  network_->break_connection(*network_->connection(1), /*silent=*/false);
  converse(kSecond);
  EXPECT_EQ(warnings(),
            (std::vector<std::string>{
                "warning: the link to side 1 on b is down: the test broke the connection",
                "warning: the link to side 1 on b is up again"}));
}

TEST_F(Warnings, ReportAFlappingLinkOccasionally) {
  connect(1);  // a pair's only link is made again at once
  size_t lines = 0;
  for (int i = 0; i < 300; ++i) {
    if (FakeConnection* link = network_->connection(0)) network_->break_connection(*link, false);
    converse(100 * kMillisecond);
    lines += warnings().size();
  }
  EXPECT_GE(lines, 4u);
  EXPECT_LE(lines, 8u) << "in 30 s";
}

TEST_F(Warnings, ReportAFlappingLinkThatIsLostForGood) {
  connect(2);
  converse(kSecond);
  for (int i = 0; i < 3; ++i) {
    if (FakeConnection* link = network_->connection(1)) network_->break_connection(*link, false);
    converse(kSecond);
  }
  close(refused(), [](int, Rail rail) { return rail == 0; });
  if (FakeConnection* link = network_->connection(1)) network_->break_connection(*link, false);
  warnings();
  converse(20 * kSecond);
  const std::vector<std::string> lines = warnings();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(is_of_outage(lines[0], "nobody listens")) << lines[0];
}

TEST_F(Warnings, LargeFramesGetThroughAgainOnceALargeSegmentHasGoneThatWay) {
  connect(2);
  lose_large_frames();
  const std::string rest =
      ", though small ones do: check the MTU of all hosts and switches on the path";
  const std::string lost =
      "warning: large frames (packets of up to 1500 bytes) do not get through ";
  EXPECT_EQ(
      log_.take("large frames"),
      (std::vector<std::string>{lost + "to side 1 on b" + rest, lost + "from side 0 on b" + rest}));
  close(refused(), [](int, Rail) { return true; });
  for (int i = 0; i < 100; ++i) {
    pass_by_b(0, 500);
    pass_by_b(1, 500);
  }
  EXPECT_EQ(log_.take("again"), std::vector<std::string>()) << "small segments do not show it";
  for (int i = 0; i < 20; ++i) {
    pass_by_b(0, 1500);
    pass_by_b(1, 256 << 10);
  }
  EXPECT_EQ(log_.take("again"), std::vector<std::string>())
      << "the other direction does not show it";
  EXPECT_NE(channel(0).describe().find("large frames"), std::string::npos);
  pass_by_b(0, 256 << 10);
  const std::vector<std::string> lines = log_.take("again");
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()),
            (std::set<std::string>{"warning: large frames get through to side 1 on b again",
                                   "warning: large frames get through from side 0 on b again"}));
  EXPECT_EQ(lines.size(), 2u);
  EXPECT_EQ(channel(0).describe(), "a: connected; b: connected");
}

TEST_F(Warnings, IgnoreALinkThatThePeerNamesByNoId) {
  connect(2);
  FakeLink* link = network_->connection(0)->ends[1].link;
  link->send(wire::FrameType::kLinkDown, encode(wire::LinkDown{.link = 0, .lost_packet = 9000}));
  pass(kSecond);
  EXPECT_EQ(log_.take(), std::vector<std::string>());
  EXPECT_EQ(channel(0).describe(), "a: connected; b: connected");
}

TEST_F(Warnings, OmitThePeersEnd) {
  for (const bool is_goodbye : {true, false}) {
    connect(2);
    if (is_goodbye) {
      channel(1).say_goodbye();
    } else {
      channel(1).leave(FakeNetwork::kJob);
    }
    network_->settle_down();
    cut_all();
    close(refused());
    pass(3 * kSecond);
    EXPECT_EQ(warnings(), std::vector<std::string>());
    network_.reset();
  }
}

TEST_F(Warnings, OmitTheEndOfThisProcess) {
  connect(2);
  channel(0).say_goodbye();
  cut_all();
  pass(kSecond);
  EXPECT_EQ(warnings(), std::vector<std::string>());
}

// All ranks of the context end now, each in its own way.
TEST_F(Warnings, StopOnceTheContextIsBroken) {
  connect(2);
  network_->side(0).own_aborts.push_back({FakeNetwork::kJob, 0, {}, "it broke"});
  cut_all();
  pass(kSecond);
  EXPECT_EQ(warnings(), std::vector<std::string>());
}

}  // namespace
}  // namespace nezha
