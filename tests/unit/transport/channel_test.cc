// SPDX-License-Identifier: Apache-2.0
// Single cases that the random traffic of channel_traffic_test.cc meets too rarely.
#include "transport/channel.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/transport/channel_script.h"
#include "tests/unit/transport/fake_link.h"
#include "transport/rate_trial.h"

namespace nezha {
namespace {

using testing::ChannelScript;
using testing::FakeConnection;
using testing::FakeNetwork;
using testing::TestReceiver;
using testing::TestSender;

TEST_F(ChannelScript, AGrantThatIsLostWithItsLinkIsSentAgain) {
  connect(2);
  TestSender& sender = send_beyond_credit();
  TestReceiver& receiver = receive(1, 1, kLarge);  // this grants the message
  cut_all();
  pass(kSecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
}

TEST_F(ChannelScript, AGrantThatIsLostWithItsLinkGoesByTheOneThatIsLeft) {
  for (const Rail dead : {0, 1}) {
    connect(2);
    TestSender& sender = send_beyond_credit();
    TestReceiver& receiver = receive(1, 1, kLarge);  // this grants the message
    network_->allow = [](int, Rail) { return false; };
    FakeConnection* connection = network_->connection(dead);
    ASSERT_NE(connection, nullptr);
    network_->break_connection(*connection, /*silent=*/false);
    for (auto& end : connection->ends) end.readable = 0;
    pass(kSecond);
    EXPECT_TRUE(receiver.complete);
    EXPECT_TRUE(sender.is_settled);
    network_.reset();
  }
}

TEST_F(ChannelScript, AGrantThatFindsNoLinkIsSentWhenThereIsOne) {
  connect(1);
  TestSender& sender = send_beyond_credit();
  cut_all();
  network_->allow = [](int, Rail) { return false; };
  pass(kSecond / 2);
  ASSERT_EQ(channel(1).up(), 0u);
  TestReceiver& receiver = receive(1, 1, kLarge);
  network_->allow = [](int side, Rail) { return side == 0; };  // so that no connections cross
  pass(5 * kSecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
}

TEST_F(ChannelScript, ALinkThatIsSilentWhileAnotherOneIsNotIsGivenUp) {
  for (const Rail silent : {0, 1}) {
    connect(2);
    FakeConnection* connection = network_->connection(silent);
    ASSERT_NE(connection, nullptr);
    network_->break_connection(*connection, /*silent=*/true);
    TestReceiver& receiver = receive(1, 1, kLarge);
    TestSender& sender = send(0, 1, kLarge);
    pass(2 * kSecond);
    EXPECT_TRUE(receiver.complete);
    EXPECT_TRUE(sender.is_settled);
    EXPECT_GE(failures(0) + failures(1), 1u);
    // The link is made again when there is something to send.
    receive(1, 2, 10);
    send(0, 2, 10);
    network_->settle_down();
    EXPECT_EQ(channel(0).up(), 3u);
    network_.reset();
  }
}

TEST_F(ChannelScript, ALinkThatOneSideGivesUpIsGivenUpByTheOther) {
  connect(2);
  network_->ends_vanish = true;  // as when a cable is pulled
  channel(0).on_carrier(1, /*up=*/false);
  network_->settle_down();  // while no time passes
  EXPECT_EQ(channel(1).up(), 1u);
}

TEST_F(ChannelScript, ALinkThatCameBackIsGivenLittleAtFirst) {
  connect(2);
  EXPECT_NEAR(share_of_1(1), 0.5, 0.1);
  network_->break_connection(*network_->connection(1), /*silent=*/false);
  network_->settle_down();
  receive(0, 2, 10);  // a side waits, so the link is made again
  send(0, 3, 10);
  for (int i = 0; i < 100 && channel(0).up() != 3; ++i) pass(5 * kMillisecond);
  ASSERT_EQ(channel(0).up(), 3u);
  EXPECT_LT(share_of_1(4), 0.2);
  pass(kSecond);
  EXPECT_NEAR(share_of_1(5), 0.5, 0.1);
}

// From now on the rail loses all frames, and the kernels notice it.
void swallow(FakeNetwork& network, Rail rail) {
  FakeConnection* connection = network.connection(rail);
  ASSERT_NE(connection, nullptr);
  network.break_connection(*connection, /*silent=*/true);
  for (auto& end : connection->ends) {
    end.readable = 0;
    end.unanswered = kSecond;
  }
}

TEST_F(ChannelScript, ALinkWhosePeersMachineConfirmsNothingIsGivenUpSoon) {
  connect(2);
  swallow(*network_, 1);
  TestReceiver& receiver = receive(1, 1, kLarge);
  TestSender& sender = send(0, 1, kLarge);
  pass(Pulse::kUnknown + Pulse::kProcessDead - 10 * kMillisecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
  EXPECT_GE(failures(0) + failures(1), 1u);
  EXPECT_EQ(network_->side(0).suspicions, std::vector<Rail>{1});
}

// A kernel retransmits a lost frame once a later frame shows the gap. Without a later frame it
// retransmits too late.
TEST_F(ChannelScript, ALinkThatLosesOneFrameIsNotGivenUp) {
  for (const Rail lossy : {0, 1}) {
    connect(2);
    FakeConnection* connection = network_->connection(lossy);
    ASSERT_NE(connection, nullptr);
    TestReceiver& receiver = receive(1, 1, kLarge);
    connection->weight = 0;  // frames behind the lost one wait for it
    for (auto& end : connection->ends) end.unanswered = kSecond;
    TestSender& sender = send(0, 1, kLarge);
    const int before = connection->ends[0].pings;
    for (int i = 0; i < 100 && connection->ends[0].pings < before + 4; ++i) {
      pass(5 * kMillisecond);
    }
    connection->weight = 10;
    for (auto& end : connection->ends) end.unanswered = 0;
    pass(kSecond);
    EXPECT_TRUE(receiver.complete);
    EXPECT_TRUE(sender.is_settled);
    EXPECT_EQ(failures(0) + failures(1), 0u);
    network_.reset();
  }
}

// Bursts overflow the queues of switches.
TEST_F(ChannelScript, LossesDuringBurstsDoNotCountAgainstTheLink) {
  connect(2);
  receive(0, 1, 10);  // a side waits for something
  lose_much(1);
  EXPECT_NEAR(share_of_1(2), 0.5, 0.1);
  pass(RateTrial::kLongest);
  lose_much(1);
  EXPECT_EQ(share_of_1(3), 0) << "bursts are over";
}

TEST_F(ChannelScript, ALinkThatLosesMuchIsLeftAloneUntilPingsShowThatItLosesNothing) {
  connect(2);
  receive(0, 1, 10);
  pass(RateTrial::kLongest);
  FakeConnection::End& end = network_->connection(1)->ends[0];
  end.packets = {1000, 10};
  pass(50 * kMillisecond);
  EXPECT_NEAR(share_of_1(2), 0.5, 0.1);
  lose_much(1);
  EXPECT_EQ(share_of_1(3), 0);
  const int before = end.pings;
  pass(kSecond);
  EXPECT_GT(end.pings, before + 30);
  EXPECT_EQ(share_of_1(4), 0) << "it has sent nothing that could have been lost";
  end.packets.sent += 1000;
  pass(50 * kMillisecond);
  EXPECT_NEAR(share_of_1(5), 0.5, 0.1);
  EXPECT_EQ(failures(0) + failures(1), 0u);
}

TEST_F(ChannelScript, ALinkThatLosesMuchIsLeftAloneAfterItsDeathToo) {
  connect(2);
  receive(0, 1, 10);
  pass(RateTrial::kLongest);
  lose_much(1);
  network_->break_connection(*network_->connection(1), /*silent=*/false);
  network_->settle_down();
  send(0, 2, 10);  // so the link is made again
  for (int i = 0; i < 100 && channel(0).up() != 3; ++i) pass(5 * kMillisecond);
  ASSERT_EQ(channel(0).up(), 3u);
  pass(kSecond);
  EXPECT_EQ(share_of_1(3), 0);
}

TEST_F(ChannelScript, NewsGoesByALinkThatLosesLittle) {
  for (const Rail lossy : {0, 1}) {
    connect(2);
    receive(0, 1, 10);
    pass(RateTrial::kLongest);
    lose_much(lossy);
    network_->connection(lossy)->weight = 0;  // the frame of the abort gets lost
    channel(0).send_abort({FakeNetwork::kJob, 0, {}, "it broke"});
    network_->settle_down();
    EXPECT_FALSE(network_->side(1).heard_aborts.empty()) << "rail " << lossy << " loses";
    network_.reset();
  }
}

TEST_F(ChannelScript, APeerThatSaysNothingIsNotAskedForEver) {
  connect(2);
  receive(0, 1, 10);
  cut_all(/*silent=*/true);
  pass(10 * kSecond);
  for (const auto& connection : network_->connections()) EXPECT_LE(connection->ends[0].pings, 20);
}

TEST_F(ChannelScript, NewsGoesByALinkThatIsWell) {
  for (const Rail silent : {0, 1}) {
    connect(2);
    swallow(*network_, silent);
    receive(0, 1, 10);
    send(0, 2, kLarge);
    while (network_->side(0).suspicions.empty()) pass(5 * kMillisecond);
    ASSERT_EQ(failures(0) + failures(1), 0u) << "it is given up, not suspected";
    channel(0).send_abort({FakeNetwork::kJob, 0, {}, "it broke"});
    network_->settle_down();
    EXPECT_FALSE(network_->side(1).heard_aborts.empty()) << "rail " << silent << " is silent";
    network_.reset();
  }
}

TEST_F(ChannelScript, AnAskedLinkIsMonitoredThoughNobodyWaits) {
  connect(2);
  pass(kSecond);
  swallow(*network_, 1);
  pass(kSecond);
  EXPECT_EQ(failures(0) + failures(1), 0u) << "nobody can know yet";
  channel(0).ask(1);
  pass(kSecond);
  EXPECT_GE(failures(0), 1u);
  EXPECT_EQ(channel(0).up(), 1u);
}

TEST_F(ChannelScript, AMachineThatStandsStillLosesNoLink) {
  connect(2);
  receive(1, 1, kLarge);
  for (const Rail rail : {0, 1}) {
    FakeConnection* connection = network_->connection(rail);
    connection->weight = 0;  // nothing moves
    for (auto& end : connection->ends) end.unanswered = kSecond;
  }
  TestSender& sender = send(0, 1, kLarge);
  pass(kSecond);
  for (const Rail rail : {0, 1}) {
    FakeConnection* connection = network_->connection(rail);
    connection->weight = 10;
    for (auto& end : connection->ends) end.unanswered = 0;
  }
  pass(kSecond);
  EXPECT_TRUE(sender.is_settled);
  EXPECT_EQ(failures(0) + failures(1), 0u);
}

// The segment takes longer than a silent link would be given, but the link is slow and not silent.
TEST_F(ChannelScript, ASlowLinkThatMovesIsNotGivenUp) {
  connect(2);
  FakeConnection* slow = network_->connection(1);
  ASSERT_NE(slow, nullptr);
  TestReceiver& receiver = receive(1, 1, kLarge);
  slow->weight = 0;  // the test moves its bytes itself
  TestSender& sender = send(0, 1, kLarge);
  for (int i = 0; i < 200; ++i) {
    slow->ends[0].link->write(1000);
    slow->ends[1].link->read(1000);
    pass(5 * kMillisecond);
  }
  EXPECT_FALSE(receiver.complete) << "it is not slow";
  EXPECT_EQ(failures(0) + failures(1), 0u);
  slow->weight = 10;
  pass(kSecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
  EXPECT_EQ(failures(0) + failures(1), 0u);
}

TEST_F(ChannelScript, AGrantThatASilentLinkLosesIsSentAgain) {
  for (const Rail silent : {0, 1}) {
    connect(2);
    TestSender& sender = send(0, 1, kLarge);
    network_->settle_down();
    network_->break_connection(*network_->connection(silent), /*silent=*/true);
    TestReceiver& receiver = receive(1, 1, kLarge);
    pass(2 * kSecond);
    EXPECT_TRUE(receiver.complete) << "rail " << silent;
    EXPECT_TRUE(sender.is_settled);
    network_.reset();
  }
}

TEST_F(ChannelScript, SilenceOfAllLinksIsNoReasonToGiveOneUp) {
  connect(2);
  receive(1, 1, kLarge);
  cut_all(/*silent=*/true);
  send(0, 1, kLarge);
  pass(2 * kSecond);  // as if the peer were stopped
  EXPECT_EQ(failures(0) + failures(1), 0u);
}

TEST_F(ChannelScript, ConnectionsThatCrossLeaveOneLinkAndCostNothing) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    network_ = std::make_unique<FakeNetwork>(*progress_, seed, 3);
    TestSender& there = send(0, 1, 10);
    TestSender& back = send(1, 1, 10);
    TestReceiver& at_one = receive(1, 1, 10);
    TestReceiver& at_zero = receive(0, 1, 10);
    network_->settle_down();  // no time passes, so nobody tries twice
    for (const int side : {0, 1}) {
      EXPECT_EQ(channel(side).up(), 7u);
      EXPECT_EQ(failures(side), 0u);
    }
    EXPECT_TRUE(there.is_settled && back.is_settled && at_one.complete && at_zero.complete);
    network_.reset();
    if (HasFailure()) return;
  }
}

TEST_F(ChannelScript, APeerThatNobodyAnswersForIsGone) {
  connect(2);
  TestSender& sender = send(0, 1, kLarge);
  TestReceiver& receiver = receive(0, 2, 10);
  network_->settle_down();
  cut_all();
  network_->allow = [](int, Rail) { return false; };
  network_->refusal = absl::UnavailableError("nobody listens");
  pass(kSecond);
  EXPECT_TRUE(channel(0).failed());
  for (const absl::Status& failure : {sender.failure, receiver.failure}) {
    EXPECT_TRUE(absl::IsUnavailable(failure)) << failure;
    EXPECT_NE(failure.message().find("side 1"), absl::string_view::npos) << failure;
    EXPECT_NE(failure.message().find("nobody listens"), absl::string_view::npos) << failure;
  }
}

// Other ranks may wait for a rank that has only noticed the death. It does not report at once,
// because the others may be in an operation that no longer needs the dead rank.
TEST_F(ChannelScript, TheDeathOfAPeerThatNobodyWaitsForIsToldAfterAWhile) {
  connect_and_rest();
  cut_all();
  network_->allow = [](int, Rail) { return false; };
  network_->refusal = absl::UnavailableError("nobody listens");
  pass(300 * kMillisecond);
  EXPECT_TRUE(network_->side(0).gone.empty());
  pass(500 * kMillisecond);
  EXPECT_EQ(network_->side(0).gone, std::vector{FakeNetwork::kJob});
}

TEST_F(ChannelScript, APeerThatNobodyWaitsForAndIsBackIsNotGone) {
  connect_and_rest();
  cut_all();
  pass(kSecond);
  EXPECT_NE(channel(0).up(), 0u);
  EXPECT_TRUE(network_->side(0).gone.empty());
  EXPECT_FALSE(channel(0).failed());
}

TEST_F(ChannelScript, APeerThatHasLeftIsNotGone) {
  connect_and_rest();
  channel(1).leave(FakeNetwork::kJob);
  network_->settle_down();
  cut_all();
  network_->allow = [](int, Rail) { return false; };
  network_->refusal = absl::UnavailableError("nobody listens");
  pass(2 * kSecond);
  EXPECT_TRUE(network_->side(0).gone.empty());
}

TEST_F(ChannelScript, APeerThatIsWaitedForAndSaysNothingIsSilent) {
  connect_and_rest();
  cut_all(/*silent=*/true);
  pass(kSecond);
  EXPECT_FALSE(channel(0).is_silent()) << "nobody waits for it";
  receive(0, 1, 10);
  pass(500 * kMillisecond);
  EXPECT_TRUE(channel(0).is_silent());
}

TEST_F(ChannelScript, APeerThatNoLinkReachesIsCutOffAndNotSilent) {
  connect_and_rest();
  receive(0, 1, 10);
  cut_all();
  network_->allow = [](int, Rail) { return false; };
  pass(500 * kMillisecond);
  EXPECT_TRUE(channel(0).is_cut_off());
  EXPECT_FALSE(channel(0).is_silent()) << "it may answer others";
}

// The peer's machine answers handshakes, but acknowledges nothing on the old connection.
TEST_F(ChannelScript, AnOnlyLinkThatStandsStillIsMadeAnew) {
  connect(1);
  swallow(*network_, 0);
  TestReceiver& receiver = receive(1, 1, kLarge);
  TestSender& sender = send(0, 1, kLarge);
  pass(3 * kSecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
}

TEST_F(ChannelScript, APeerBehindAPathThatPassesHandshakesAloneIsCutOffAndNotSilent) {
  connect(1);
  receive(1, 1, kLarge);
  send(0, 1, kLarge);
  for (const Nanos end = now() + 5 * kSecond; now() < end;) {
    do {
      if (FakeConnection* made = network_->connection(0); made != nullptr) {
        swallow(*network_, 0);
        for (auto& side : made->ends) side.unanswered = kSecond * 60;  // acknowledges nothing
      }
      progress_->run_deferred();
    } while (network_->step());
    clock_.advance(5 * kMillisecond);
    run_timers();
  }
  EXPECT_TRUE(channel(0).is_cut_off());
  EXPECT_FALSE(channel(0).is_silent());
  const std::string described = channel(0).describe();
  EXPECT_NE(described.find("large frames"), std::string::npos) << described;
}

TEST_F(ChannelScript, DataOfABrokenContextDoesNotDelayDraining) {
  connect(1);
  cut_all(/*silent=*/true);
  const TestSender& sender = send(0, 1, 100);
  network_->settle_down();
  ASSERT_TRUE(sender.is_settled);
  EXPECT_FALSE(channel(0).drained());
  network_->side(0).own_aborts.push_back({FakeNetwork::kJob, 0, {}, "it broke"});
  EXPECT_TRUE(channel(0).drained());
}

TEST_F(ChannelScript, ARailThatIsOnlyUnreachableIsTriedAgain) {
  connect(2);
  TestSender& sender = send(0, 1, kLarge);
  TestReceiver& receiver = receive(1, 1, kLarge);
  cut_all();
  network_->allow = [](int, Rail) { return false; };  // attempts fail, but no peer refuses
  pass(3 * kSecond);
  EXPECT_FALSE(channel(0).failed());
  EXPECT_FALSE(receiver.over());
  network_->allow = [](int, Rail rail) { return rail == 1; };
  pass(5 * kSecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
}

TEST_F(ChannelScript, APeerThatSaidGoodbyeHasLeftWhenItsLinksEnd) {
  connect(2);
  TestReceiver& receiver = receive(0, 1, 10);
  channel(1).say_goodbye();
  network_->settle_down();
  EXPECT_TRUE(receiver.failure.ok());
  cut_all();
  pass(kSecond);
  EXPECT_TRUE(absl::IsUnavailable(receiver.failure)) << receiver.failure;
  EXPECT_NE(receiver.failure.message().find("has left"), absl::string_view::npos);
  EXPECT_EQ(failures(0), 0u) << "no failure of the rail";
}

TEST_F(ChannelScript, AGoodbyeBringsTheAcknowledgementsOfSmallMessages) {
  connect(2);
  TestSender& sender = send(0, 1, 100);
  TestReceiver& receiver = receive(1, 1, 100);
  network_->settle_down();
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
  channel(0).say_goodbye();
  network_->settle_down();
  EXPECT_TRUE(channel(0).drained());
  EXPECT_EQ(network_->side(0).pool().bytes_in_use(), 0u);
}

TEST_F(ChannelScript, AnAbortThatASilentLinkLosesIsSentAgain) {
  connect(2);
  receive(1, 1, 10);
  const wire::Abort abort{FakeNetwork::kJob, 0, {}, "it broke"};
  network_->side(0).own_aborts.push_back(abort);
  network_->break_connection(*network_->connection(0), /*silent=*/true);
  channel(0).send_abort(abort);
  pass(kSecond);
  EXPECT_FALSE(network_->side(1).heard_aborts.empty());
}

// The process leaves at once; the next link carries what its only link lost.
TEST_F(ChannelScript, WhatIsNotAcknowledgedIsHandedOverAfterLeaving) {
  connect(1);
  TestReceiver& receiver = receive(1, 1, 100);
  cut_all(/*silent=*/true);
  const TestSender& sender = send(0, 1, 100);
  network_->settle_down();
  ASSERT_TRUE(sender.is_settled);
  channel(0).leave(FakeNetwork::kJob);
  EXPECT_FALSE(channel(0).drained());
  network_->end_silence();
  pass(5 * kSecond);
  EXPECT_TRUE(receiver.complete) << receiver.failure;
  EXPECT_TRUE(channel(0).drained());
  // Now the peer has left.
  const TestReceiver& late = receive(1, 2, 100);
  pass(kSecond);
  EXPECT_TRUE(absl::IsUnavailable(late.failure)) << late.failure;
}

TEST_F(ChannelScript, ALeaveThatASilentLinkLosesIsSentAgain) {
  connect(2);
  const TestReceiver& receiver = receive(1, 1, 10);
  network_->break_connection(*network_->connection(0), /*silent=*/true);
  channel(0).leave(FakeNetwork::kJob);
  pass(kSecond);
  EXPECT_TRUE(absl::IsUnavailable(receiver.failure)) << receiver.failure;
}

}  // namespace
}  // namespace nezha
