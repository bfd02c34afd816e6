// SPDX-License-Identifier: Apache-2.0
#include "transport/pulse.h"

#include <gtest/gtest.h>

namespace nezha {
namespace {

using State = Pulse::State;
using Trouble = Pulse::Trouble;

class PulseTest : public ::testing::Test {
 protected:
  PulseTest() {
    pulse_.begin(time_);
    link_.moved = Pulse::kUnknownBytes;
    look();
    time_ += 10 * kSecond;  // long enough to forget what it was granted while unknown
    look();
  }

  // Looks every 5 ms while the state is `during`. Returns how long that is, at most a second. The
  // peer answers on another link all the time, or never.
  Nanos lasts(State during, bool sibling_answers = true, Nanos waiting_since = 0) {
    const Nanos start = time_;
    while (look(sibling_answers, waiting_since) == during && time_ - start < kSecond) {
      time_ += 5 * kMillisecond;
    }
    return time_ - start;
  }
  State look(bool sibling_answers = true, Nanos waiting_since = 0) {
    return pulse_.look(link_, waiting_since, sibling_answers ? time_ : 0, time_);
  }

  Link::Health link_;
  Pulse pulse_;
  Nanos time_ = 100 * kSecond;
};

TEST_F(PulseTest, NothingIsExpectedOfAnIdleLink) { EXPECT_EQ(lasts(State::kWell), kSecond); }

TEST_F(PulseTest, AMachineThatConfirmsNothingIsSuspectedAndThenDead) {
  link_.unanswered = kSecond;  // it was idle before
  EXPECT_EQ(lasts(State::kWell), Pulse::kMachineSuspected);
  EXPECT_TRUE(pulse_.is_suspected());
  EXPECT_EQ(lasts(State::kSuspected), Pulse::kMachineDead - Pulse::kMachineSuspected);
  EXPECT_EQ(pulse_.silence(), Pulse::kMachineDead);
}

// A shaper with 2 Mbit/s lets 22 frames pass together after 130 ms.
TEST_F(PulseTest, GrantsTheTimeThatConfirmationsTake) {
  const Nanos train = 130 * kMillisecond;
  link_.confirmation_time = train;
  look();
  link_.confirmation_time = 0;  // later frames are small
  time_ += kSecond / 10;
  link_.unanswered = kSecond;
  const Nanos granted = train - kSecond / 10 / 50;
  const Nanos well = lasts(State::kWell);
  EXPECT_GT(well, granted + Pulse::kMachineSuspected - 10 * kMillisecond);
  EXPECT_LE(well, granted + Pulse::kMachineSuspected);
  lasts(State::kSuspected);
  EXPECT_GE(pulse_.silence(), Pulse::kMachineDead);
  EXPECT_LT(pulse_.silence(), Pulse::kMachineDead + 10 * kMillisecond);
}

TEST_F(PulseTest, ALinkThatHasMovedLittleHasNoKnownConfirmationTime) {
  link_.moved = 0;
  pulse_.begin(time_);
  link_.unanswered = kSecond;
  EXPECT_EQ(lasts(State::kWell), Pulse::kUnknown + Pulse::kMachineSuspected);
}

TEST_F(PulseTest, LimitsTheGrantedTime) {
  link_.confirmation_time = 10 * kSecond;
  link_.unanswered = kSecond;
  EXPECT_EQ(lasts(State::kWell), Pulse::kMostGranted + Pulse::kMachineSuspected);
}

TEST_F(PulseTest, AMachineThatConfirmsSomethingIsWell) {
  link_.unanswered = kSecond;
  for (int i = 0; i < 100; ++i, time_ += 40 * kMillisecond) {  // as a delayed acknowledgement
    ++link_.delivered;
    EXPECT_EQ(look(), State::kWell);
  }
}

// Acknowledgements may come with the peer's own data, and pings may arrive.
TEST_F(PulseTest, DataWithoutConfirmationsIsNoProgress) {
  pulse_.asked(time_);
  const Nanos asked_at = time_;
  State state = State::kWell;
  for (; state != State::kDead && time_ - asked_at < kSecond; time_ += 5 * kMillisecond) {
    link_.unanswered = kMillisecond;
    pulse_.heard(time_, /*is_answer=*/false);
    state = look();
  }
  EXPECT_EQ(state, State::kDead);
  EXPECT_EQ(pulse_.trouble(), Trouble::kLargeFrames);
}

TEST_F(PulseTest, QuestionsThatArriveAreNoAnswers) {
  pulse_.asked(time_);
  const Nanos asked_at = time_;
  State state = State::kWell;
  for (; state != State::kDead && time_ - asked_at < kSecond; time_ += 5 * kMillisecond) {
    ++link_.delivered;
    pulse_.heard(time_, /*is_answer=*/false);
    state = look();
  }
  EXPECT_EQ(state, State::kDead);
  EXPECT_EQ(pulse_.trouble(), Trouble::kProcess);
}

TEST_F(PulseTest, AnAnswerMayWaitBehindWhatMoves) {
  pulse_.asked(time_);
  for (int i = 0; i < 100; ++i, time_ += 25 * kMillisecond) {
    ++link_.moved;
    EXPECT_EQ(look(), State::kWell);
  }
}

TEST_F(PulseTest, ASilentMachineIsReportedAsTheTrouble) {
  link_.unanswered = kSecond;
  lasts(State::kWell);
  EXPECT_EQ(pulse_.trouble(), Trouble::kNone);
  lasts(State::kSuspected);
  EXPECT_EQ(pulse_.trouble(), Trouble::kMachine);
}

TEST_F(PulseTest, ANewLinkThatStandsStillAgainPassesHandshakesOnly) {
  for (const bool is_sending : {true, false}) {
    const Nanos still_since = time_ - 5 * kSecond;
    pulse_.begin(time_, still_since);
    link_.delivered = 0;
    link_.unanswered = is_sending ? 10 * kSecond : 0;
    pulse_.asked(time_);
    look();
    time_ += 5 * kMillisecond;
    look();
    EXPECT_EQ(pulse_.trouble(), Trouble::kLargeFrames) << is_sending;
    EXPECT_EQ(pulse_.is_owed(), is_sending);
    EXPECT_EQ(pulse_.still_since(), still_since);
    // Now the link carries large frames, and the peer's process has answered.
    link_.delivered = Pulse::kLittleBytes;
    pulse_.heard(time_, /*is_answer=*/true);
    look();
    EXPECT_EQ(pulse_.trouble(), Trouble::kNone);
    pulse_.asked(time_);
    time_ += 3 * kSecond;
    look();
    EXPECT_EQ(pulse_.trouble(), is_sending ? Trouble::kMachine : Trouble::kProcess);
  }
}

TEST_F(PulseTest, AProcessThatAnswersNothingIsSuspectedAndThenDead) {
  pulse_.asked(time_);
  EXPECT_EQ(lasts(State::kWell), Pulse::kProcessSuspected);
  pulse_.asked(time_);  // asking again changes nothing
  // The answer on another link counts from the next look on.
  EXPECT_EQ(lasts(State::kSuspected), Pulse::kProcessMoment + 5 * kMillisecond);
}

TEST_F(PulseTest, SegmentsThatAreNotAcknowledgedAreAQuestion) {
  EXPECT_EQ(lasts(State::kWell, true, time_), Pulse::kProcessSuspected);
}

TEST_F(PulseTest, NothingDiesWhileThePeerIsSilentByAllLinks) {
  pulse_.asked(time_);
  link_.unanswered = kSecond;
  lasts(State::kWell, false);
  EXPECT_EQ(lasts(State::kSuspected, false), kSecond);
  // The peer answers on one link before it answers on the other.
  EXPECT_EQ(look(), State::kSuspected);
  pulse_.heard(time_, true);
  link_.unanswered = 0;
  EXPECT_EQ(lasts(State::kWell), kSecond);
}

TEST_F(PulseTest, WhatIsHeardEndsASuspicion) {
  pulse_.asked(time_);
  lasts(State::kWell);
  EXPECT_TRUE(pulse_.is_suspected());
  pulse_.heard(time_, true);
  EXPECT_FALSE(pulse_.is_asked());
  EXPECT_EQ(lasts(State::kWell), kSecond);
  EXPECT_FALSE(pulse_.is_suspected());
}

}  // namespace
}  // namespace nezha
