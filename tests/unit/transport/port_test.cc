// SPDX-License-Identifier: Apache-2.0
#include "transport/port.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/unit/transport/log_lines.h"
#include "tests/unit/transport/port_fixture.h"

namespace nezha {
namespace {

using testing::LogLines;

using PortTest = testing::PortFixture;

const Device::Connected kIgnored = [](auto&&...) {};

TEST_F(PortTest, ConnectsByThePeersNameOfTheRail) {
  contact_.add({}, {{"a", "theirs"}});
  port(0).connect(kJob, kIgnored);
  ASSERT_EQ(kept(0).hellos.size(), 1u);
  EXPECT_EQ(kept(0).addresses[0], "a-there");
  const wire::Hello& hello = kept(0).hellos[0];
  EXPECT_EQ(hello.rail, "theirs");
  EXPECT_EQ(hello.job, kJob);
  EXPECT_EQ(hello.source, contact_.process());
  EXPECT_EQ(hello.target, contact_.peer());
  EXPECT_EQ(hello.link_id, port(0).attempt_id());
  EXPECT_TRUE(port(0).is_connecting());
}

TEST_F(PortTest, EachAttemptIsOfAHigherGeneration) {
  for (uint32_t i = 1; i <= 3; ++i) {
    port(0).connect(kJob, kIgnored);
    EXPECT_EQ(kept(0).hellos.back().generation, i);
    port(0).attempt_ended(absl::AbortedError("no"));
    EXPECT_FALSE(port(0).is_connecting());
  }
}

TEST_F(PortTest, WithoutCarrierOrAddressThereIsNoAttempt) {
  kept(0).has_carrier = false;
  port(0).connect(kJob, kIgnored);
  EXPECT_TRUE(kept(0).hellos.empty());
  EXPECT_EQ(port(0).state(), "the interface has no carrier");
  kept(0).has_carrier = true;
  EXPECT_EQ(port(0).state(), "no answer yet from a-there");

  devices_.push_back(std::make_unique<testing::KeptDevice>(2));  // the peer has no such rail
  port(2).connect(kJob, kIgnored);
  EXPECT_TRUE(kept(2).hellos.empty());
  EXPECT_EQ(port(2).state(), "the peer has no such rail");
}

TEST_F(PortTest, AnAttemptThatFailsIsMadeAgainAfterAWhile) {
  EXPECT_TRUE(port(0).is_due(now(), true));
  port(0).connect(kJob, kIgnored);
  EXPECT_FALSE(port(0).is_due(now(), true)) << "there is one";
  port(0).attempt_ended(absl::UnavailableError("refused"));
  EXPECT_FALSE(port(0).is_due(now(), true));
  EXPECT_TRUE(port(0).refusals().is_refused());
  EXPECT_EQ(port(0).state(), "refused");
  clock_.advance(kSecond);
  EXPECT_TRUE(port(0).is_due(now(), true));
}

TEST_F(PortTest, BothEndsKeepTheSameOfCrossingConnections) {
  const auto answer = [&](uint32_t generation) {
    wire::Hello hello;
    hello.generation = generation;
    return port(0).answer(hello);
  };
  EXPECT_EQ(answer(1), wire::WelcomeCode::kAccepted);
  port(0).connect(kJob, kIgnored);
  EXPECT_EQ(answer(1), wire::WelcomeCode::kDuplicate) << "this process has the smaller id";
  EXPECT_EQ(answer(2), wire::WelcomeCode::kAccepted);
  port(0).give_up_attempt();
  EXPECT_EQ(answer(1), wire::WelcomeCode::kAccepted);
  link_up(0);  // of generation 1
  EXPECT_EQ(answer(1), wire::WelcomeCode::kDuplicate);
  EXPECT_EQ(answer(2), wire::WelcomeCode::kAccepted);
}

TEST_F(PortTest, ALinkThatIsLostIsMissingUntilThereIsAnother) {
  EXPECT_EQ(port(0).missing_since(now()), 0);
  const auto frames = link_up(0);
  EXPECT_EQ(port(0).state(), "connected");
  link_down(0);
  EXPECT_TRUE(frames->is_gone);
  EXPECT_EQ(port(0).link(), nullptr);
  EXPECT_EQ(port(0).state(), "it was cut");
  EXPECT_NE(port(0).missing_since(now()), 0);
  EXPECT_FALSE(port(0).is_long_missing(now()));
  clock_.advance(Outage::kLong);
  EXPECT_TRUE(port(0).is_long_missing(now()));
  link_up(0);
  port(0).tell_up();
  EXPECT_EQ(port(0).missing_since(now()), 0);
  EXPECT_EQ(kept(0).counters().reconnections, 1u);
}

TEST_F(PortTest, ARailThatWasNeverUpIsMissingOnlyAfterLong) {
  port(0).is_due(now(), true);
  EXPECT_EQ(port(0).missing_since(now()), 0);
  clock_.advance(Outage::kLong);
  EXPECT_NE(port(0).missing_since(now()), 0);
}

TEST_F(PortTest, TheLogTellsOfTheEndOnceAndOfTheReturn) {
  LogLines lines;
  const absl::Status why = absl::UnavailableError("it was cut");
  for (int i = 0; i < 2; ++i) {
    link_up(0);
    link_down(0);
    port(0).tell_down(why, /*is_missed=*/true);
  }
  EXPECT_EQ(lines.take("the link to the peer on a is down: it was cut").size(), 1u);
  link_up(0);
  port(0).tell_up();
  EXPECT_EQ(lines.take("the link to the peer on a is up again").size(), 1u);
  EXPECT_EQ(kept(0).counters().failures, 2u);
  EXPECT_EQ(kept(0).counters().last_failure, "the peer: it was cut");
}

TEST_F(PortTest, OneQuestionIsOpenAtATime) {
  EXPECT_FALSE(port(0).ask()) << "there is no link";
  const auto frames = link_up(0);
  EXPECT_TRUE(port(0).ask());
  EXPECT_FALSE(port(0).ask());
  EXPECT_EQ(frames->count(wire::FrameType::kPing), 1);
  port(0).heard(wire::FrameType::kPing);
  EXPECT_TRUE(port(0).is_asked()) << "a question is no answer";
  port(0).heard(wire::FrameType::kAck);
  EXPECT_FALSE(port(0).is_asked());
  EXPECT_TRUE(port(0).ask());
}

TEST_F(PortTest, AnAcknowledgementIsSentOnce) {
  const auto frames = link_up(0);
  port(0).flush_ack();
  EXPECT_EQ(frames->acks, 0);
  port(0).set_ack_due();
  port(0).flush_ack();
  port(0).flush_ack();
  EXPECT_EQ(frames->acks, 1);
}

TEST_F(PortTest, ALinkThatLosesMuchIsLossy) {
  link_up(0);
  clock_.advance(RateTrial::kLongest);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(port(0).is_lossy());
    link(0).state.packets.sent += 1000;
    link(0).state.packets.lost += 50;
    EXPECT_EQ(port(0).judge_losses(now()), i == 1);
  }
  EXPECT_TRUE(port(0).is_lossy());
  link_down(0);
  EXPECT_FALSE(port(0).is_lossy()) << "there is no link";
}

TEST_F(PortTest, LossesDuringABurstDoNotCountAgainstTheLink) {
  link_up(0);
  for (int i = 0; i < 4; ++i) {
    kept(0).trial().disturbed(now());
    link(0).state.packets.sent += 1000;
    link(0).state.packets.lost += 50;
    EXPECT_FALSE(port(0).judge_losses(now()));
  }
}

TEST_F(PortTest, APeerWhoseMachineConfirmsNothingIsAskedByAnotherLink) {
  link_up(0);
  link(0).state.unanswered = kSecond;
  port(0).look(0, 0, now());
  EXPECT_FALSE(port(0).is_to_be_remade(now()));
  clock_.advance(2 * kSecond);
  link(0).state.unanswered = 2 * kSecond;
  port(0).look(0, 0, now());
  EXPECT_EQ(port(0).trouble(), Pulse::Trouble::kMachine);
  EXPECT_TRUE(port(0).is_to_be_remade(now()));
  EXPECT_EQ(port(0).remade_error().message(),
            "the peer's host has confirmed nothing; this rank made the link anew");
  port(0).connect(kJob, kIgnored);
  EXPECT_FALSE(port(0).is_to_be_remade(now())) << "it is being made";
}

TEST_F(PortTest, ThePeerHearsThatLargeFramesAreLost) {
  link_up(0, 11);
  EXPECT_EQ(port(0).last_words(false).lost_packet, 0u);
  lose_large_frames(0);
  LogLines lines;
  const wire::LinkDown words = port(0).last_words(/*is_missed=*/true);
  EXPECT_EQ(words.link, 11u);
  EXPECT_EQ(words.lost_packet, 9000u);
  EXPECT_EQ(lines.take("do not get through to the peer on a").size(), 1u);
  link_down(0);
  link_up(0, 12);
  EXPECT_NE(port(0).state(), "connected")
      << "a link that is up does not show that large frames arrive";
  port(0).passed(9001, Outage::Way::kTo);
  EXPECT_EQ(lines.take("large frames get through to the peer on a again").size(), 1u);
  EXPECT_EQ(port(0).state(), "connected");
}

TEST_F(PortTest, ALinkThatThePeerGaveUpIsGivenUp) {
  link_up(0, 11);
  link_up(1, 12);
  EXPECT_TRUE(port(0).peer_gave_up({12, 0}, link(1), false).ok()) << "it is another port's";
  EXPECT_TRUE(port(0).peer_gave_up({11, 0}, link(0), false).ok()) << "it has just said so itself";
  EXPECT_TRUE(port(0).peer_gave_up({0, 0}, link(1), false).ok()) << "no link has that id";
  EXPECT_EQ(port(0).peer_gave_up({11, 0}, link(1), false).message(), "the peer gave the link up");
}

TEST_F(PortTest, RemembersWhyThePeerGaveUpALink) {
  link_up(0, 11);
  link_up(1, 12);
  link_down(0);
  EXPECT_TRUE(port(0).peer_gave_up({11, 0}, link(1), false).ok());
  EXPECT_EQ(port(0).state(), "it was cut");
  EXPECT_TRUE(port(0).peer_gave_up({11, 1500}, link(1), false).ok());
  EXPECT_NE(port(0).state().find("packets of up to 1500 bytes"), std::string::npos);
}

}  // namespace
}  // namespace nezha
