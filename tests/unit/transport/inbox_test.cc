// SPDX-License-Identifier: Apache-2.0
// Messages that arrive completely: matching, order, credit and grants.
#include "transport/inbox.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/transport/inbox_fixture.h"

namespace nezha {
namespace {

using testing::FakeReceiver;
using testing::InboxTest;

TEST_F(InboxTest, PostedMessageLandsInPlaceFromItsSegmentsInAnyOrder) {
  FakeReceiver receiver(10);
  inbox_.post(info(1, 10), &receiver);
  ASSERT_TRUE(deliver(info(1, 10), 1, 6, "ghij").ok());
  EXPECT_TRUE(inbox_.wanted());
  ASSERT_TRUE(deliver(info(1, 10), 1, 0, "abcdef").ok());
  EXPECT_EQ(receiver.memory, "abcdefghij");
  const std::vector<std::pair<uint64_t, size_t>> expected{{6, 4}, {0, 6}};
  EXPECT_EQ(receiver.landings, expected);
  EXPECT_EQ(receiver.placed, expected);
  EXPECT_FALSE(inbox_.wanted());
  EXPECT_EQ(consumed(), 2 * kCharge);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

TEST_F(InboxTest, UnaskedMessageIsHeldAndLandsWhenAskedFor) {
  ASSERT_TRUE(deliver(info(1, 6), 1, 3, "def").ok());
  ASSERT_TRUE(deliver(info(1, 6), 1, 0, "abc").ok());
  EXPECT_EQ(consumed(), 0u);
  EXPECT_GT(pool_.bytes_in_use(), 0u);
  FakeReceiver receiver(6);
  inbox_.post(info(1, 6), &receiver);
  EXPECT_EQ(receiver.memory, "abcdef");
  EXPECT_EQ(receiver.landings.size(), 2u);
  EXPECT_EQ(consumed(), 2 * kCharge);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
  EXPECT_FALSE(inbox_.wanted());
}

TEST_F(InboxTest, MessagesOfOneTagMatchInOrderOfUseEvenWhenLinksOvertake) {
  FakeReceiver first(1), second(1);
  inbox_.post(info(1, 1), &first);
  inbox_.post(info(1, 1), &second);
  // Message 2 arrives first. It says that the previous message with its tag is 1 back.
  ASSERT_TRUE(deliver(info(1, 1), 2, 0, "2", wire::kFlagCharged, 1).ok());
  EXPECT_EQ(first.landings.size() + second.landings.size(), 0u);
  ASSERT_TRUE(deliver(info(1, 1), 1, 0, "1").ok());
  EXPECT_EQ(first.memory, "1");
  EXPECT_EQ(second.memory, "2");
}

TEST_F(InboxTest, AMessageWithoutPreviousDoesNotWaitForOthers) {
  FakeReceiver receiver(1);
  inbox_.post(info(1, 1), &receiver);
  ASSERT_TRUE(deliver(info(1, 1), 9, 0, "9").ok());
  EXPECT_EQ(receiver.memory, "9");
}

// ---- Receivers that wait for a message of one of several inboxes ------------------------------

TEST_F(InboxTest, OneOfSeveralIsToldOnceThatItHasMatchedAndBeforeAnythingIsPlaced) {
  FakeReceiver receiver(6), usual(1);
  receiver.on_matched = [&] { EXPECT_TRUE(receiver.placed.empty()); };
  inbox_.post(info(1, 6), &receiver, /*asks=*/true);
  inbox_.post(info(2, 1), &usual);
  EXPECT_EQ(receiver.matches, 0);
  ASSERT_TRUE(deliver(info(1, 6), 1, 3, "def").ok());
  ASSERT_TRUE(deliver(info(1, 6), 1, 0, "abc").ok());
  ASSERT_TRUE(deliver(info(2, 1), 2, 0, "x").ok());
  EXPECT_EQ(receiver.matches, 1);
  EXPECT_EQ(usual.matches, 0);
  EXPECT_EQ(receiver.memory, "abcdef");
}

TEST_F(InboxTest, OneOfSeveralMatchesAMessageOfWhichNoByteHasComeYet) {
  FakeReceiver receiver(6);
  inbox_.post(info(1, 6), &receiver, /*asks=*/true);
  ASSERT_TRUE(deliver(info(1, 6), 1, 0, "", wire::kFlagWantGrant).ok());
  EXPECT_EQ(receiver.matches, 1);
  EXPECT_EQ(owner_.grants, std::vector<uint64_t>{1});
}

TEST_F(InboxTest, OneOfSeveralIsToldOfAMessageThatWaits) {
  ASSERT_TRUE(deliver(info(1, 3), 1, 0, "abc").ok());
  FakeReceiver receiver(3);
  receiver.on_matched = [&] { EXPECT_TRUE(receiver.placed.empty()); };
  inbox_.post(info(1, 3), &receiver, /*asks=*/true);
  EXPECT_EQ(receiver.matches, 1);
  EXPECT_EQ(receiver.memory, "abc");
}

TEST_F(InboxTest, OneOfSeveralTakesItsTurnAndMayBeWithdrawn) {
  FakeReceiver first(1), several(1), last(1);
  inbox_.post(info(1, 1), &first);
  Inbox::Ticket* ticket = inbox_.post(info(1, 1), &several, /*asks=*/true);
  inbox_.post(info(1, 1), &last);
  ASSERT_TRUE(deliver(info(1, 1), 1, 0, "1").ok());
  EXPECT_EQ(several.matches, 0) << "the message is the first one's";
  inbox_.cancel(ticket);
  ASSERT_TRUE(deliver(info(1, 1), 2, 0, "2", wire::kFlagCharged, 1).ok());
  EXPECT_EQ(several.matches, 0);
  EXPECT_EQ(last.memory, "2");
}

TEST_F(InboxTest, OneOfSeveralIsToldOfItsMatchBeforeTheMismatch) {
  FakeReceiver receiver(2);
  receiver.on_matched = [&] { EXPECT_TRUE(receiver.mismatches.empty()); };
  inbox_.post(info(1, 2), &receiver, /*asks=*/true);
  ASSERT_TRUE(deliver(info(1, 1), 1, 0, "1").ok());
  EXPECT_EQ(receiver.matches, 1);
  EXPECT_EQ(receiver.mismatches.size(), 1u);
}

TEST_F(InboxTest, AReceiverThatIsAskedMayTakeLessThanItHasRoomFor) {
  FakeReceiver receiver(3);
  receiver.takes_less = true;
  inbox_.post(info(1, 3), &receiver, /*asks=*/true);
  ASSERT_TRUE(deliver(info(1, 2), 1, 0, "ab").ok());
  EXPECT_EQ(receiver.memory, "ab.");
  EXPECT_TRUE(receiver.mismatches.empty());
}

// ---- Grants that are asked for --------------------------------------------------------------

TEST_F(InboxTest, AGrantThatWasLostIsGivenAgainThoughTheMessageIsComplete) {
  FakeReceiver receiver(1);
  inbox_.post(info(1, 1), &receiver);
  ASSERT_TRUE(deliver(info(1, 1), 1, 0, "1", wire::kFlagWantGrant).ok());
  EXPECT_EQ(owner_.grants, std::vector<uint64_t>{1});
  ASSERT_TRUE(deliver(info(1, 1), 1, 0, "", wire::kFlagWantGrant).ok());
  EXPECT_EQ(owner_.grants, (std::vector<uint64_t>{1, 1}));
  EXPECT_EQ(receiver.landings.size(), 1u);
}

// ---- What is awaited, and credit --------------------------------------------------------------

TEST_F(InboxTest, IsWantedWhileAnyMessageIsAwaited) {
  FakeReceiver first(2), second(1);
  Inbox::Ticket* ticket = inbox_.post(info(1, 2), &first);
  EXPECT_TRUE(inbox_.wanted()) << "a message is awaited at first";
  for (int i = 0; i < 2; ++i) inbox_.set_awaited(ticket, false);
  EXPECT_FALSE(inbox_.wanted());
  Inbox::Ticket* other = inbox_.post(info(2, 1), &second);
  EXPECT_TRUE(inbox_.wanted());
  inbox_.cancel(other);
  EXPECT_FALSE(inbox_.wanted());
  for (int i = 0; i < 2; ++i) inbox_.set_awaited(ticket, true);
  ASSERT_TRUE(deliver(info(1, 2), 1, 0, "a").ok());
  EXPECT_TRUE(inbox_.wanted());
  inbox_.set_awaited(ticket, false);
  EXPECT_FALSE(inbox_.wanted());
  ASSERT_TRUE(deliver(info(1, 2), 1, 1, "b").ok());
  EXPECT_EQ(first.memory, "ab") << "the message comes nevertheless";
  // The next ticket reuses the memory of this one, but not its state.
  inbox_.post(info(1, 2), &first);
  EXPECT_TRUE(inbox_.wanted());
  inbox_.fail(absl::UnavailableError("gone"));
  EXPECT_FALSE(inbox_.wanted());
}

TEST_F(InboxTest, WhatNobodyAwaitsFailsToo) {
  FakeReceiver receiver(1);
  inbox_.set_awaited(inbox_.post(info(1, 1), &receiver), false);
  inbox_.fail_context(info(1, 1).context, absl::UnavailableError("left"));
  EXPECT_EQ(receiver.failures.size(), 1u);
  EXPECT_FALSE(inbox_.wanted());
}

TEST_F(InboxTest, MessagesOfDifferentTagsDoNotWaitForEachOther) {
  FakeReceiver receiver(1);
  inbox_.post(info(2, 1), &receiver);
  ASSERT_TRUE(deliver(info(1, 1), 1, 0, "x").ok());
  ASSERT_TRUE(deliver(info(2, 1), 2, 0, "y").ok());
  EXPECT_EQ(receiver.memory, "y");
}

TEST_F(InboxTest, PreviousMayBeCompleteAlready) {
  FakeReceiver first(1), second(1);
  inbox_.post(info(1, 1), &first);
  ASSERT_TRUE(deliver(info(1, 1), 3, 0, "a").ok());
  inbox_.post(info(1, 1), &second);
  ASSERT_TRUE(deliver(info(1, 1), 5, 0, "b", wire::kFlagCharged, 2).ok());
  EXPECT_EQ(second.memory, "b");
}

TEST_F(InboxTest, DuplicatesGoNowhereAndAreConsumedOnce) {
  FakeReceiver receiver(4);
  inbox_.post(info(1, 4), &receiver);
  ASSERT_TRUE(deliver(info(1, 4), 1, 0, "ab").ok());
  auto place = arrive(1, info(1, 4), 1, 0, 2);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(*place, nullptr);
  inbox_.landed(1);
  ASSERT_TRUE(deliver(info(1, 4), 1, 2, "cd").ok());
  // The same holds when the message is complete.
  place = arrive(1, info(1, 4), 1, 2, 2);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(*place, nullptr);
  inbox_.landed(1);
  EXPECT_EQ(receiver.memory, "abcd");
  EXPECT_EQ(receiver.landings.size(), 2u);
  EXPECT_EQ(consumed(), 2 * kCharge);
}

TEST_F(InboxTest, ADuplicateOfWhatIsHeldNeedsNoCredit) {
  const std::string half(Inbox::kCredit / 2 + 1, 'x');
  ASSERT_TRUE(deliver(info(1, half.size()), 1, 0, half).ok());
  EXPECT_TRUE(deliver(info(1, half.size()), 1, 0, half, wire::kFlagCharged, 0, 1).ok());
  FakeReceiver receiver(half.size());
  inbox_.post(info(1, half.size()), &receiver);
  EXPECT_EQ(receiver.memory, half);
  EXPECT_EQ(receiver.landings.size(), 1u);
  EXPECT_EQ(consumed(), wire::charge(half.size()));
}

TEST_F(InboxTest, WhatNobodyAskedForIsBoundedByTheCredit) {
  const std::string all(Inbox::kCredit, 'x');
  ASSERT_TRUE(deliver(info(1, all.size()), 1, 0, all).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(deliver(info(2, 1), 2, 0, "y")));
  EXPECT_LE(pool_.bytes_in_use(), Inbox::kCredit);
  // Asking for the message makes room.
  FakeReceiver receiver(all.size());
  inbox_.post(info(1, all.size()), &receiver);
  EXPECT_EQ(consumed(), Inbox::kCredit);
  EXPECT_TRUE(deliver(info(2, 1), 2, 0, "y").ok());
}

// For segments of every size, the pool uses exactly what the credit is charged.
TEST_F(InboxTest, HeldMemoryIsBoundedByTheCredit) {
  for (const size_t size : {1u, 255u, 256u, 257u, 4096u, 4097u, 65535u, 65537u, 131073u}) {
    BufferPool pool;
    Inbox inbox(owner_, pool);
    wire::FrameHeader frame;
    frame.type = wire::FrameType::kData;
    frame.flags = wire::kFlagCharged;
    frame.length = static_cast<uint32_t>(size);
    wire::DataHeader data;
    data.info = info(1, size);
    for (data.number = 1; inbox.arrive(0, frame, data).ok(); ++data.number) {
      inbox.landed(0);
      ASSERT_EQ(pool.bytes_in_use(), data.number * wire::charge(size));
    }
    EXPECT_LE(pool.bytes_in_use(), Inbox::kCredit);
    EXPECT_GT(pool.bytes_in_use(), Inbox::kCredit / 2);
  }
}

TEST_F(InboxTest, WhatNobodyAskedForMustBeCharged) {
  EXPECT_TRUE(absl::IsResourceExhausted(deliver(info(1, 1), 1, 0, "x", 0)));
  FakeReceiver receiver(1);
  inbox_.post(info(2, 1), &receiver);
  EXPECT_TRUE(deliver(info(2, 1), 2, 0, "x", 0).ok());
  EXPECT_EQ(consumed(), 0u);
}

TEST_F(InboxTest, AnAnnouncedMessageIsGrantedWhenAskedFor) {
  ASSERT_TRUE(deliver(info(1, 1 << 20), 1, 0, "", wire::kFlagWantGrant).ok());
  EXPECT_TRUE(owner_.grants.empty());
  FakeReceiver receiver(1 << 20);
  inbox_.post(info(1, 1 << 20), &receiver);
  EXPECT_EQ(owner_.grants, std::vector<uint64_t>{1});
  EXPECT_TRUE(receiver.landings.empty());
  EXPECT_TRUE(inbox_.wanted());
}

TEST_F(InboxTest, AMessageThatWasAskedForIsGrantedWhenAnnounced) {
  FakeReceiver receiver(1 << 20);
  inbox_.post(info(1, 1 << 20), &receiver);
  ASSERT_TRUE(deliver(info(1, 1 << 20), 1, 0, "", wire::kFlagWantGrant).ok());
  EXPECT_EQ(owner_.grants, std::vector<uint64_t>{1});
}

TEST_F(InboxTest, AnEmptyMessageLandsOnce) {
  FakeReceiver early(0), late(0);
  inbox_.post(info(1, 0), &early);
  ASSERT_TRUE(deliver(info(1, 0), 1, 0, "", 0).ok());
  ASSERT_TRUE(deliver(info(1, 0), 1, 0, "", 0, 0, 1).ok());  // the same segment again
  const std::vector<std::pair<uint64_t, size_t>> once{{0, 0}};
  EXPECT_EQ(early.landings, once);
  EXPECT_TRUE(early.placed.empty());
  ASSERT_TRUE(deliver(info(1, 0), 2, 0, "", 0, 1).ok());
  inbox_.post(info(1, 0), &late);
  EXPECT_EQ(late.landings, once);
  EXPECT_FALSE(inbox_.wanted());
}

TEST_F(InboxTest, AMismatchIsToldToTheReceiverAndTheMessageIsDropped) {
  FakeReceiver posted_first(4), posted_last(4);
  inbox_.post(info(1, 4), &posted_first);
  ASSERT_TRUE(deliver(info(1, 2), 1, 0, "ab").ok());
  ASSERT_EQ(posted_first.mismatches.size(), 1u);
  EXPECT_EQ(posted_first.mismatches[0], info(1, 2));
  EXPECT_FALSE(inbox_.wanted());
  EXPECT_EQ(consumed(), kCharge);
  ASSERT_TRUE(deliver(info(1, 2), 2, 0, "cd", wire::kFlagCharged, 1).ok());
  wire::MessageInfo other = info(1, 2);
  other.signature = 10;
  inbox_.post(other, &posted_last);
  ASSERT_EQ(posted_last.mismatches.size(), 1u);
  EXPECT_TRUE(posted_last.placed.empty());
  EXPECT_EQ(consumed(), 2 * kCharge);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

// ---- Several segments in flight on one link ----------------------------------------------------

TEST_F(InboxTest, WhatALinkReadsAtATimeLandsInTheOrderOfItsHeaders) {
  FakeReceiver receiver(9);
  inbox_.post(info(1, 9), &receiver);
  const auto third = arrive(0, info(1, 9), 1, 6, 3);
  const auto other = arrive(1, info(1, 9), 1, 3, 2);
  const auto first = arrive(0, info(1, 9), 1, 0, 3);
  const auto end = arrive(0, info(1, 9), 1, 5, 1);
  for (const auto& place : {third, other, first, end}) ASSERT_TRUE(place.ok() && *place != nullptr);
  std::memcpy(*end, "f", 1);
  std::memcpy(*first, "abc", 3);
  std::memcpy(*other, "de", 2);
  std::memcpy(*third, "ghi", 3);
  using Landings = std::vector<std::pair<uint64_t, size_t>>;
  inbox_.landed(0);
  EXPECT_EQ(receiver.landings, (Landings{{6, 3}}));
  inbox_.landed(0);
  EXPECT_EQ(receiver.landings, (Landings{{6, 3}, {0, 3}}));
  inbox_.landed(1);
  inbox_.landed(0);
  EXPECT_EQ(receiver.landings, (Landings{{6, 3}, {0, 3}, {3, 2}, {5, 1}}));
  EXPECT_EQ(receiver.memory, "abcdefghi");
  EXPECT_EQ(consumed(), 4 * kCharge);
  EXPECT_FALSE(inbox_.wanted());
}

TEST_F(InboxTest, EachSegmentOfALinkHasItsOwnLengthAndAcknowledgement) {
  FakeReceiver receiver(6);
  inbox_.post(info(1, 6), &receiver);
  ASSERT_TRUE(arrive(0, info(1, 6), 1, 0, 1).ok());
  ASSERT_TRUE(arrive(0, info(1, 6), 1, 1, 3, wire::kFlagCharged | wire::kFlagAckNow).ok());
  ASSERT_TRUE(arrive(1, info(1, 6), 1, 4, 2).ok());
  const auto expect_next = [&](Rail rail, uint32_t length, bool is_ack_due) {
    EXPECT_EQ(inbox_.next_to_land(rail).length, length);
    EXPECT_EQ(inbox_.next_to_land(rail).is_ack_due, is_ack_due);
    inbox_.landed(rail);
  };
  expect_next(0, 1, false);
  expect_next(1, 2, false);
  expect_next(0, 3, true);
  EXPECT_EQ(receiver.landings.size(), 3u);
}

TEST_F(InboxTest, WhatComesTwiceKeepsItsPlaceInTheOrder) {
  FakeReceiver receiver(4), next(1);
  inbox_.post(info(1, 4), &receiver);
  inbox_.post(info(2, 1), &next);
  ASSERT_TRUE(deliver(info(1, 4), 1, 0, "ab").ok());
  const auto again = arrive(0, info(1, 4), 1, 0, 2);
  const auto rest = arrive(0, info(1, 4), 1, 2, 2);
  ASSERT_TRUE(again.ok() && rest.ok());
  EXPECT_EQ(*again, nullptr);
  std::memcpy(*rest, "cd", 2);
  inbox_.landed(0);
  EXPECT_EQ(receiver.landings.size(), 1u) << "the duplicate has landed";
  inbox_.landed(0);
  EXPECT_EQ(receiver.memory, "abcd");
  // The same holds for a message that is complete.
  ASSERT_TRUE(arrive(0, info(1, 4), 1, 2, 2).ok());
  const auto other = arrive(0, info(2, 1), 2, 0, 1);
  ASSERT_TRUE(other.ok());
  std::memcpy(*other, "x", 1);
  inbox_.landed(0);
  EXPECT_TRUE(next.landings.empty());
  inbox_.landed(0);
  EXPECT_EQ(next.memory, "x");
}

TEST_F(InboxTest, AllThatIsHeldOfALinkCountsFromItsHeaderOn) {
  const size_t half = Inbox::kCredit / 2;
  const auto first = arrive(0, info(1, 2 * half), 1, 0, half);
  const auto last = arrive(0, info(1, 2 * half), 1, half, half);
  ASSERT_TRUE(first.ok() && last.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(arrive(1, info(2, 1), 2, 0, 1).status()));
  std::memset(*first, 'a', half);
  std::memset(*last, 'b', half);
  inbox_.landed(0);
  FakeReceiver receiver(2 * half);
  inbox_.post(info(1, 2 * half), &receiver);
  EXPECT_EQ(receiver.landings.size(), 1u);
  inbox_.landed(0);
  EXPECT_EQ(receiver.memory, std::string(half, 'a') + std::string(half, 'b'));
  EXPECT_EQ(consumed(), Inbox::kCredit);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

TEST_F(InboxTest, WhatIsRefusedTakesNoPlaceInTheOrder) {
  FakeReceiver receiver(4);
  inbox_.post(info(1, 4), &receiver);
  const auto place = arrive(0, info(1, 4), 1, 0, 4);
  ASSERT_TRUE(place.ok());
  EXPECT_FALSE(arrive(0, info(1, 5), 1, 4, 1).ok());
  EXPECT_FALSE(arrive(0, info(2, 4), 2, 0, 4, 0).ok()) << "nobody has asked for it";
  std::memcpy(*place, "abcd", 4);
  inbox_.landed(0);
  EXPECT_EQ(receiver.memory, "abcd");
  EXPECT_EQ(receiver.landings.size(), 1u);
}

TEST_F(InboxTest, SegmentsThatContradictEachOtherAreErrors) {
  FakeReceiver receiver(10);
  inbox_.post(info(1, 10), &receiver);
  ASSERT_TRUE(deliver(info(1, 10), 1, 0, "abc").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(deliver(info(1, 11), 1, 3, "x")));
  EXPECT_TRUE(absl::IsInvalidArgument(deliver(info(2, 10), 1, 3, "x")));
  EXPECT_TRUE(absl::IsInvalidArgument(deliver(info(1, 10), 1, 2, "cd")));
  EXPECT_EQ(receiver.landings.size(), 1u);
}

}  // namespace
}  // namespace nezha
