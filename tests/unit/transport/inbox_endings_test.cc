// SPDX-License-Identifier: Apache-2.0
// Messages that end early: they are cancelled, their context is closed or their link dies.

#include <cstring>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/transport/inbox_fixture.h"
#include "transport/inbox.h"

namespace nezha {
namespace {

using testing::FakeReceiver;
using testing::InboxTest;
using Dropped = std::vector<std::pair<Rail, size_t>>;

TEST_F(InboxTest, NothingIsPlacedOrLandedAfterCancel) {
  FakeReceiver receiver(6);
  Inbox::Ticket* ticket = inbox_.post(info(1, 6), &receiver);
  ASSERT_TRUE(deliver(info(1, 6), 1, 0, "ab").ok());
  const auto place = arrive(3, info(1, 6), 1, 2, 2);
  ASSERT_TRUE(place.ok());
  EXPECT_NE(*place, nullptr);
  inbox_.cancel(ticket);
  EXPECT_EQ(owner_.dropped, (Dropped{{3, 0}}));
  inbox_.landed(3);
  ASSERT_TRUE(deliver(info(1, 6), 1, 4, "ef").ok());
  EXPECT_EQ(receiver.landings.size(), 1u);
  EXPECT_EQ(receiver.placed.size(), 2u);
  EXPECT_FALSE(inbox_.wanted());
  EXPECT_EQ(consumed(), 3 * kCharge);  // the sender gets its credit back
  // The message counts as complete for the order of its tag.
  FakeReceiver next(1);
  inbox_.post(info(1, 1), &next);
  ASSERT_TRUE(deliver(info(1, 1), 2, 0, "n", wire::kFlagCharged, 1).ok());
  EXPECT_EQ(next.memory, "n");
}

TEST_F(InboxTest, CancelBeforeTheFirstSegmentLeavesItToTheNextReceiver) {
  FakeReceiver cancelled(1), next(1);
  Inbox::Ticket* ticket = inbox_.post(info(1, 1), &cancelled);
  inbox_.cancel(ticket);
  EXPECT_FALSE(inbox_.wanted());
  inbox_.post(info(1, 1), &next);
  ASSERT_TRUE(deliver(info(1, 1), 1, 0, "x").ok());
  EXPECT_TRUE(cancelled.placed.empty());
  EXPECT_EQ(next.memory, "x");
}

TEST_F(InboxTest, AReceiverMayCancelFromInsideOfLanded) {
  ASSERT_TRUE(deliver(info(1, 4), 1, 0, "ab").ok());
  ASSERT_TRUE(deliver(info(1, 4), 1, 2, "cd").ok());
  ASSERT_TRUE(deliver(info(2, 1), 2, 0, "x").ok());
  FakeReceiver other(1), receiver(4);
  // When the first segment lands, the operation fails for another reason.
  Inbox::Ticket* cancelled = inbox_.post(info(3, 4), &receiver);
  receiver.on_landed = [&] { inbox_.cancel(cancelled); };
  ASSERT_TRUE(deliver(info(3, 4), 3, 0, "AB").ok());
  ASSERT_TRUE(deliver(info(3, 4), 3, 2, "CD").ok());
  EXPECT_EQ(receiver.landings.size(), 1u);
  EXPECT_FALSE(inbox_.wanted());
}

TEST_F(InboxTest, ACancelledMessageIsGrantedSoThatTheSenderIsRidOfIt) {
  FakeReceiver receiver(1 << 20);
  Inbox::Ticket* ticket = inbox_.post(info(1, 1 << 20), &receiver);
  ASSERT_TRUE(deliver(info(1, 1 << 20), 1, 0, "ab").ok());
  inbox_.cancel(ticket);
  ASSERT_TRUE(deliver(info(1, 1 << 20), 1, 0, "", wire::kFlagWantGrant).ok());
  EXPECT_EQ(owner_.grants, std::vector<uint64_t>{1});
}

TEST_F(InboxTest, AMessageOfAClosedContextIsGrantedSoThatTheSenderIsRidOfIt) {
  inbox_.close_context(5);
  ASSERT_TRUE(deliver(info(1, 1 << 20), 1, 0, "", wire::kFlagWantGrant).ok());
  EXPECT_EQ(owner_.grants, std::vector<uint64_t>{1});
}

TEST_F(InboxTest, MessagesOfAClosedContextAreDropped) {
  ASSERT_TRUE(deliver(info(1, 2), 1, 0, "ab").ok());
  inbox_.close_context(5);
  EXPECT_EQ(consumed(), kCharge);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
  ASSERT_TRUE(deliver(info(1, 2), 2, 0, "cd").ok());
  EXPECT_EQ(consumed(), 2 * kCharge);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
  // Messages of another context still arrive.
  wire::MessageInfo other = info(1, 1);
  other.context = 6;
  FakeReceiver receiver(1);
  inbox_.post(other, &receiver);
  ASSERT_TRUE(deliver(other, 3, 0, "x").ok());
  EXPECT_EQ(receiver.memory, "x");
}

TEST_F(InboxTest, TheContextsThatWereClosedLastAreRemembered) {
  for (uint64_t context = 1; context <= Inbox::kMaxClosed + 1; ++context) {
    inbox_.close_context(context);
    inbox_.close_context(context);  // this counts once
  }
  wire::MessageInfo late = info(1, 1);
  for (uint64_t context = 2; context <= Inbox::kMaxClosed + 1; ++context) {
    late.context = context;
    ASSERT_TRUE(deliver(late, context, 0, "x").ok());
    EXPECT_EQ(pool_.bytes_in_use(), 0u);
  }
  late.context = 1;  // no longer remembered
  ASSERT_TRUE(deliver(late, 1, 0, "x").ok());
  EXPECT_GT(pool_.bytes_in_use(), 0u);
}

TEST_F(InboxTest, ALinkThatDiesInASegmentMakesRoomForItToComeAgain) {
  FakeReceiver receiver(4);
  inbox_.post(info(1, 4), &receiver);
  ASSERT_TRUE(arrive(0, info(1, 4), 1, 0, 4).ok());
  inbox_.link_gone(0);
  ASSERT_TRUE(deliver(info(1, 4), 1, 0, "abcd", wire::kFlagCharged, 0, 1).ok());
  EXPECT_EQ(receiver.memory, "abcd");
  EXPECT_EQ(receiver.placed.size(), 1u);  // once for each segment
  EXPECT_EQ(receiver.landings.size(), 1u);
}

TEST_F(InboxTest, HeldMemoryOfALinkThatDiesIsNotCounted) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(arrive(0, info(1, Inbox::kCredit), 1, 0, Inbox::kCredit).ok());
    inbox_.link_gone(0);
  }
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

// Two links are in the middle of the same segment, so the sender has given one of them up, but the
// receiver does not know which. Here the first link continues and the second breaks.
TEST_F(InboxTest, TheLaterOfTwoAttemptsLandsThoughItArrivesFirst) {
  FakeReceiver receiver(4);
  inbox_.post(info(1, 4), &receiver);
  const auto live = arrive(0, info(1, 4), 1, 0, 4, wire::kFlagCharged, 0, /*attempt=*/1);
  ASSERT_TRUE(live.ok());
  std::memcpy(*live, "ab", 2);
  const auto stale = arrive(1, info(1, 4), 1, 0, 4, wire::kFlagCharged, 0, /*attempt=*/0);
  ASSERT_TRUE(stale.ok());
  EXPECT_EQ(*stale, nullptr);
  EXPECT_TRUE(owner_.dropped.empty());
  inbox_.landed(1);
  EXPECT_TRUE(receiver.landings.empty());
  std::memcpy(*live + 2, "cd", 2);
  inbox_.landed(0);
  EXPECT_EQ(receiver.landings.size(), 1u);
  EXPECT_EQ(receiver.memory, "abcd");
}

TEST_F(InboxTest, TheLaterOfTwoAttemptsReplacesTheEarlierOne) {
  for (const bool first_breaks_off : {true, false}) {
    const uint64_t number = first_breaks_off ? 1 : 2;
    FakeReceiver receiver(4);
    inbox_.post(info(number, 4), &receiver);
    const auto stale = arrive(0, info(number, 4), number, 0, 4);
    ASSERT_TRUE(stale.ok());
    std::memcpy(*stale, "xx", 2);
    const auto live = arrive(1, info(number, 4), number, 0, 4, wire::kFlagCharged, 0, 1);
    ASSERT_TRUE(live.ok());
    EXPECT_EQ(owner_.dropped, (Dropped{{0, 0}}));  // this link writes nothing more
    owner_.dropped.clear();
    if (first_breaks_off) {
      inbox_.link_gone(0);
    } else {
      inbox_.landed(0);
    }
    EXPECT_TRUE(receiver.landings.empty());
    std::memcpy(*live, "abcd", 4);
    inbox_.landed(1);
    EXPECT_EQ(receiver.memory, "abcd");
    EXPECT_EQ(receiver.placed.size(), 1u);
    EXPECT_EQ(receiver.landings.size(), 1u);
    EXPECT_EQ(pool_.bytes_in_use(), 0u);
  }
}

TEST_F(InboxTest, ALinkThatDiesMakesRoomForAllThatItWasReading) {
  FakeReceiver receiver(6);
  inbox_.post(info(1, 6), &receiver);
  for (const uint64_t offset : {0, 2, 4}) ASSERT_TRUE(arrive(0, info(1, 6), 1, offset, 2).ok());
  const auto held = arrive(0, info(2, 2), 2, 0, 2);
  ASSERT_TRUE(held.ok());
  inbox_.link_gone(0);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
  ASSERT_TRUE(deliver(info(1, 6), 1, 4, "ef", wire::kFlagCharged, 0, 1, 1).ok());
  ASSERT_TRUE(deliver(info(1, 6), 1, 0, "ab", wire::kFlagCharged, 0, 1, 1).ok());
  ASSERT_TRUE(deliver(info(1, 6), 1, 2, "cd", wire::kFlagCharged, 0, 0, 1).ok());
  EXPECT_EQ(receiver.memory, "abcdef");
  EXPECT_EQ(receiver.placed.size(), 3u);  // once for each segment
  EXPECT_EQ(receiver.landings.size(), 3u);
}

TEST_F(InboxTest, ALaterAttemptTakesThePlaceOfOneOfThoseThatALinkReads) {
  FakeReceiver receiver(6), other(2);
  inbox_.post(info(1, 6), &receiver);
  inbox_.post(info(2, 2), &other);
  const auto first = arrive(0, info(1, 6), 1, 0, 2);
  ASSERT_TRUE(arrive(1, info(2, 2), 2, 0, 2).ok());
  const auto stale = arrive(0, info(1, 6), 1, 2, 2);
  const auto last = arrive(0, info(1, 6), 1, 4, 2);
  ASSERT_TRUE(first.ok() && stale.ok() && last.ok());
  std::memcpy(*stale, "xx", 2);
  const auto live = arrive(1, info(1, 6), 1, 2, 2, wire::kFlagCharged, 0, /*attempt=*/1);
  ASSERT_TRUE(live.ok());
  EXPECT_EQ(owner_.dropped, (Dropped{{0, 1}}));
  std::memcpy(*first, "ab", 2);
  std::memcpy(*last, "ef", 2);
  for (int i = 0; i < 3; ++i) inbox_.landed(0);
  EXPECT_EQ(receiver.landings.size(), 2u);
  inbox_.landed(1);
  EXPECT_EQ(other.landings.size(), 1u);
  std::memcpy(*live, "cd", 2);
  inbox_.landed(1);
  EXPECT_EQ(receiver.memory, "abcdef");
  EXPECT_EQ(receiver.placed.size(), 3u);
  EXPECT_EQ(receiver.landings.size(), 3u);
}

// A correct peer sends a segment at most once on a link.
TEST_F(InboxTest, TheLaterAttemptLandsIfALinkReadsASegmentTwice) {
  for (const uint32_t second : {0u, 1u, 2u}) {
    const uint64_t number = 1 + second;
    FakeReceiver receiver(4);
    inbox_.post(info(number, 4), &receiver);
    const auto one = arrive(0, info(number, 4), number, 0, 4, wire::kFlagCharged, 0, 1);
    const auto other = arrive(0, info(number, 4), number, 0, 4, wire::kFlagCharged, 0, second);
    ASSERT_TRUE(one.ok() && other.ok());
    const bool is_later = second > 1;
    EXPECT_EQ(owner_.dropped, is_later ? (Dropped{{0, 0}}) : Dropped());
    ASSERT_EQ(*other != nullptr, is_later);
    std::memcpy(is_later ? *other : *one, "abcd", 4);
    inbox_.landed(0);
    EXPECT_EQ(receiver.landings.size(), is_later ? 0u : 1u);
    inbox_.landed(0);
    EXPECT_EQ(receiver.memory, "abcd");
    EXPECT_EQ(receiver.placed.size(), 1u);
    EXPECT_EQ(receiver.landings.size(), 1u);
  }
  EXPECT_EQ(consumed(), 3 * kCharge);
}

TEST_F(InboxTest, CancelDropsAllOfTheMessageThatLinksReadAndNothingElse) {
  FakeReceiver cancelled(9), other(1);
  Inbox::Ticket* ticket = inbox_.post(info(1, 9), &cancelled);
  inbox_.post(info(2, 1), &other);
  ASSERT_TRUE(arrive(0, info(1, 9), 1, 0, 3).ok());
  const auto kept = arrive(0, info(2, 1), 2, 0, 1);
  ASSERT_TRUE(kept.ok());
  ASSERT_TRUE(arrive(1, info(1, 9), 1, 3, 3).ok());
  ASSERT_TRUE(arrive(0, info(1, 9), 1, 6, 3).ok());
  inbox_.cancel(ticket);
  EXPECT_EQ(owner_.dropped, (Dropped{{0, 0}, {1, 0}, {0, 2}}));
  std::memcpy(*kept, "x", 1);
  for (const Rail rail : {0, 0, 1, 0}) inbox_.landed(rail);
  EXPECT_TRUE(cancelled.landings.empty());
  EXPECT_EQ(other.memory, "x");
  EXPECT_EQ(other.landings.size(), 1u);
  EXPECT_EQ(consumed(), 4 * kCharge);
  // All of the message has been consumed, so the next one of its tag is received normally.
  FakeReceiver next(1);
  inbox_.post(info(1, 1), &next);
  ASSERT_TRUE(deliver(info(1, 1), 3, 0, "n", wire::kFlagCharged, 2).ok());
  EXPECT_EQ(next.memory, "n");
}

// Otherwise a receiver's memory could be written after its message was complete.
TEST_F(InboxTest, SegmentThatOverlapsOneThatIsComingIsRefused) {
  FakeReceiver receiver(150);
  inbox_.post(info(1, 150), &receiver);
  ASSERT_TRUE(arrive(0, info(1, 150), 1, 10, 50).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(arrive(1, info(1, 150), 1, 0, 20).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(arrive(2, info(1, 150), 1, 20, 130).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(arrive(0, info(1, 150), 1, 59, 1).status()));
}

TEST_F(InboxTest, SegmentThatItsReceiverRefusesFailsTheLink) {
  struct Refusing final : Receiver {
    int failures = 0;
    std::byte* place(uint64_t, size_t) override { return nullptr; }
    void landed(uint64_t, size_t, Rail) override { ADD_FAILURE(); }
    void failed(const absl::Status&) override { ++failures; }
    void mismatched(const wire::MessageInfo&) override { ADD_FAILURE(); }
  } refusing;
  Inbox::Ticket* ticket = inbox_.post(info(1, 10), &refusing);
  EXPECT_TRUE(absl::IsInvalidArgument(deliver(info(1, 10), 1, 0, "abc")));
  inbox_.link_gone(0);
  inbox_.cancel(ticket);
  // The link can no longer be told about a segment that was held before, so the receiver fails.
  ASSERT_TRUE(deliver(info(2, 10), 2, 0, "abc").ok());
  inbox_.post(info(2, 10), &refusing);
  EXPECT_EQ(refusing.failures, 1);
  EXPECT_FALSE(inbox_.wanted());
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

TEST_F(InboxTest, CancelWhileHeldSegmentsLandEndsTheMessage) {
  FakeReceiver receiver(6), next(1);
  ASSERT_TRUE(deliver(info(1, 6), 1, 0, "abc").ok());
  ASSERT_TRUE(deliver(info(1, 6), 1, 3, "def").ok());
  inbox_.post(info(9, 1), &next);
  receiver.on_landed = [&] { inbox_.fail(absl::CancelledError("enough")); };
  inbox_.post(info(1, 6), &receiver);
  EXPECT_EQ(receiver.landings.size(), 1u);
  EXPECT_EQ(next.failures.size(), 1u);
  EXPECT_FALSE(inbox_.wanted());
  // The message is over, so segments of it that come again are dropped.
  const auto late = arrive(1, info(1, 6), 1, 3, 3);
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(*late, nullptr);
  EXPECT_EQ(consumed(), 2 * kCharge);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

TEST_F(InboxTest, AbandonedMessageEndsOnceNobodyWantsIt) {
  FakeReceiver receiver(10), next(3);
  Inbox::Ticket* ticket = inbox_.post(info(1, 10), &receiver);
  ASSERT_TRUE(deliver(info(1, 10), 1, 0, "abc").ok());
  ASSERT_TRUE(deliver(info(1, 10), 1, /*in all*/ 3, "", wire::kFlagAbandoned).ok());
  EXPECT_TRUE(receiver.failures.empty());  // its operation ends by other means
  inbox_.cancel(ticket);
  // Nothing of the message is left: a late segment is dropped, and the next message is received
  // normally.
  const auto late = arrive(1, info(1, 10), 1, 3, 7);
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(*late, nullptr);
  inbox_.landed(1);
  EXPECT_EQ(consumed(), kCharge);
  inbox_.post(info(1, 3), &next);
  ASSERT_TRUE(deliver(info(1, 3), 2, 0, "xyz", wire::kFlagCharged, 1).ok());
  EXPECT_EQ(next.memory, "xyz");
}

// Segments on other links may arrive after the end of an abandoned message, although they were
// charged.
TEST_F(InboxTest, CreditOfSegmentsThatAnEndOvertakesIsReturned) {
  for (const bool closed : {false, true}) {
    const uint64_t number = closed ? 2 : 1;
    const uint64_t before = consumed();
    FakeReceiver receiver(8);
    Inbox::Ticket* ticket = inbox_.post(info(number, 8), &receiver);
    ASSERT_TRUE(deliver(info(number, 8), number, 0, "ab").ok());
    inbox_.cancel(ticket);
    if (closed) inbox_.close_context(5);
    ASSERT_TRUE(deliver(info(number, 8), number, 6, "", wire::kFlagAbandoned, 0, 1).ok());
    ASSERT_TRUE(deliver(info(number, 8), number, 4, "ef").ok());
    ASSERT_TRUE(deliver(info(number, 8), number, 2, "cd").ok());
    EXPECT_EQ(consumed(), before + 3 * kCharge);
    // The message has ended, so this segment counts for nothing.
    ASSERT_TRUE(deliver(info(number, 8), number, 6, "gh").ok());
    EXPECT_EQ(consumed(), before + 3 * kCharge);
  }
}

TEST_F(InboxTest, AMessageOfAClosedContextWhoseEndComesFirstIsConsumed) {
  inbox_.close_context(5);
  ASSERT_TRUE(deliver(info(1, 8), 1, 2, "", wire::kFlagAbandoned, 0, 1).ok());
  ASSERT_TRUE(deliver(info(1, 8), 1, 6, "gh").ok());
  EXPECT_EQ(consumed(), kCharge);
}

TEST_F(InboxTest, AllReceiversFailOnceWhateverTheyCancelMeanwhile) {
  std::vector<std::unique_ptr<FakeReceiver>> receivers;
  std::vector<Inbox::Ticket*> tickets;
  for (uint64_t i = 0; i < 3; ++i) {
    receivers.push_back(std::make_unique<FakeReceiver>(1));
    tickets.push_back(inbox_.post(info(i, 1), receivers.back().get()));
  }
  // The last receiver cancels the first one, and leaves its own ticket to the inbox.
  receivers[2]->on_failed = [&] {
    if (receivers[2]->failures.size() == 1) inbox_.cancel(tickets[0]);
  };
  inbox_.fail(absl::UnavailableError("gone"));
  EXPECT_EQ(receivers[0]->failures.size(), 0u);
  EXPECT_EQ(receivers[1]->failures.size(), 1u);
  EXPECT_EQ(receivers[2]->failures.size(), 1u);
  EXPECT_FALSE(inbox_.wanted());
}

}  // namespace
}  // namespace nezha
