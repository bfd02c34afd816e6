#include "transport/inbox.h"

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

struct FakeOwner final : InboxOwner {
  std::vector<uint64_t> grants;
  std::vector<Rail> dropped;
  void send_grant(uint64_t number) override { grants.push_back(number); }
  void drop_incoming(Rail rail) override { dropped.push_back(rail); }
};

struct FakeReceiver final : Receiver {
  std::string memory;
  std::vector<std::pair<uint64_t, size_t>> placed, landings;
  std::vector<absl::Status> failures;
  std::vector<wire::MessageInfo> mismatches;
  std::function<void()> on_landed = [] {};
  std::function<void()> on_failed = [] {};

  explicit FakeReceiver(size_t bytes) : memory(bytes, '.') {}
  std::byte* place(uint64_t offset, size_t length) override {
    placed.emplace_back(offset, length);
    return reinterpret_cast<std::byte*>(memory.data()) + offset;
  }
  void landed(uint64_t offset, size_t length, Rail) override {
    landings.emplace_back(offset, length);
    on_landed();
  }
  void failed(const absl::Status& why) override {
    failures.push_back(why);
    on_failed();
  }
  void mismatched(const wire::MessageInfo& theirs) override { mismatches.push_back(theirs); }
};

// What a segment of a few bytes takes of the credit.
constexpr uint64_t kCharge = wire::charge(1);

wire::MessageInfo info(uint64_t tag, uint64_t total) {
  wire::MessageInfo result;
  result.context = 5;
  result.tag = tag;
  result.signature = 9;
  result.total = total;
  return result;
}

class InboxTest : public ::testing::Test {
 protected:
  // A segment's header; where its payload goes.
  absl::StatusOr<std::byte*> arrive(Rail rail, const wire::MessageInfo& message, uint64_t number,
                                    uint64_t offset, size_t length,
                                    uint8_t flags = wire::kFlagCharged, uint32_t previous = 0,
                                    uint32_t attempt = 0) {
    wire::FrameHeader frame;
    frame.type = wire::FrameType::kData;
    frame.flags = flags;
    frame.length = static_cast<uint32_t>(length);
    wire::DataHeader data;
    data.info = message;
    data.number = number;
    data.offset = offset;
    data.previous = previous;
    data.attempt = attempt;
    return inbox_.arrive(rail, frame, data);
  }
  // A whole segment.
  absl::Status deliver(const wire::MessageInfo& message, uint64_t number, uint64_t offset,
                       const std::string& payload, uint8_t flags = wire::kFlagCharged,
                       uint32_t previous = 0, Rail rail = 0) {
    const auto place = arrive(rail, message, number, offset, payload.size(), flags, previous);
    if (!place.ok()) return place.status();
    if (*place != nullptr) std::memcpy(*place, payload.data(), payload.size());
    inbox_.landed(rail);
    return absl::OkStatus();
  }
  uint64_t consumed() const { return inbox_.credit() - Inbox::kCredit; }

  FakeOwner owner_;
  BufferPool pool_;
  Inbox inbox_{owner_, pool_};
};

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
  // Message 2 before message 1; it says that the one before it, by that tag, is 1 back.
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

TEST_F(InboxTest, IsWantedWhileAnyMessageIsAwaited) {
  FakeReceiver first(2), second(1);
  Inbox::Ticket* ticket = inbox_.post(info(1, 2), &first);
  EXPECT_TRUE(inbox_.wanted()) << "which is so at first";
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
  EXPECT_EQ(first.memory, "ab") << "it comes all the same";
  // The next ticket is that one's memory, and nothing of what was said of it.
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
  // Also when the message is complete.
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
  // Asking makes room.
  FakeReceiver receiver(all.size());
  inbox_.post(info(1, all.size()), &receiver);
  EXPECT_EQ(consumed(), Inbox::kCredit);
  EXPECT_TRUE(deliver(info(2, 1), 2, 0, "y").ok());
}

// Whatever the segments' size: what the pool takes for one is what it is charged.
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
  ASSERT_TRUE(deliver(info(1, 0), 1, 0, "", 0, 0, 1).ok());  // again
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

TEST_F(InboxTest, SegmentsThatContradictEachOtherAreErrors) {
  FakeReceiver receiver(10);
  inbox_.post(info(1, 10), &receiver);
  ASSERT_TRUE(deliver(info(1, 10), 1, 0, "abc").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(deliver(info(1, 11), 1, 3, "x")));
  EXPECT_TRUE(absl::IsInvalidArgument(deliver(info(2, 10), 1, 3, "x")));
  EXPECT_TRUE(absl::IsInvalidArgument(deliver(info(1, 10), 1, 2, "cd")));
  EXPECT_EQ(receiver.landings.size(), 1u);
}

TEST_F(InboxTest, NothingIsPlacedOrLandedAfterCancel) {
  FakeReceiver receiver(6);
  Inbox::Ticket* ticket = inbox_.post(info(1, 6), &receiver);
  ASSERT_TRUE(deliver(info(1, 6), 1, 0, "ab").ok());
  const auto place = arrive(3, info(1, 6), 1, 2, 2);
  ASSERT_TRUE(place.ok());
  EXPECT_NE(*place, nullptr);
  inbox_.cancel(ticket);
  EXPECT_EQ(owner_.dropped, std::vector<Rail>{3});
  inbox_.landed(3);
  ASSERT_TRUE(deliver(info(1, 6), 1, 4, "ef").ok());
  EXPECT_EQ(receiver.landings.size(), 1u);
  EXPECT_EQ(receiver.placed.size(), 2u);
  EXPECT_FALSE(inbox_.wanted());
  EXPECT_EQ(consumed(), 3 * kCharge);  // the sender gets its credit back
  // The message is complete, as far as its order is concerned.
  FakeReceiver next(1);
  inbox_.post(info(1, 1), &next);
  ASSERT_TRUE(deliver(info(1, 1), 2, 0, "n", wire::kFlagCharged, 1).ok());
  EXPECT_EQ(next.memory, "n");
}

TEST_F(InboxTest, CancelBeforeAnythingCame) {
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
  // As the first segment lands, the operation fails for another reason.
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
  // Another context goes on.
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
    inbox_.close_context(context);  // counts once
  }
  wire::MessageInfo late = info(1, 1);
  for (uint64_t context = 2; context <= Inbox::kMaxClosed + 1; ++context) {
    late.context = context;
    ASSERT_TRUE(deliver(late, context, 0, "x").ok());
    EXPECT_EQ(pool_.bytes_in_use(), 0u);
  }
  late.context = 1;  // forgotten
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

// Of two links in the middle of one segment the sender has given one up, and nothing says which.
// Here the first goes on and the second breaks off.
TEST_F(InboxTest, OfTwoAttemptsAtOnceTheLaterOneLandsThoughItCameFirst) {
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

TEST_F(InboxTest, OfTwoAttemptsAtOnceTheLaterOneTakesTheEarlierOnesPlace) {
  for (const bool first_breaks_off : {true, false}) {
    const uint64_t number = first_breaks_off ? 1 : 2;
    FakeReceiver receiver(4);
    inbox_.post(info(number, 4), &receiver);
    const auto stale = arrive(0, info(number, 4), number, 0, 4);
    ASSERT_TRUE(stale.ok());
    std::memcpy(*stale, "xx", 2);
    const auto live = arrive(1, info(number, 4), number, 0, 4, wire::kFlagCharged, 0, 1);
    ASSERT_TRUE(live.ok());
    EXPECT_EQ(owner_.dropped, std::vector<Rail>{0});  // it writes nothing any more
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

// A receiver's memory would be written after its message was complete.
TEST_F(InboxTest, SegmentThatOverlapsOneThatIsComingIsRefused) {
  FakeReceiver receiver(150);
  inbox_.post(info(1, 150), &receiver);
  ASSERT_TRUE(arrive(0, info(1, 150), 1, 10, 50).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(arrive(1, info(1, 150), 1, 0, 20).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(arrive(2, info(1, 150), 1, 20, 130).status()));
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
  // What was held already, when the link cannot be told any more, fails the receiver.
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
  // The message is over: what comes of it again is dropped.
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
  // Nothing of it is left: a late segment is dropped, and the next message takes its course.
  const auto late = arrive(1, info(1, 10), 1, 3, 7);
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(*late, nullptr);
  inbox_.landed(1);
  EXPECT_EQ(consumed(), kCharge);
  inbox_.post(info(1, 3), &next);
  ASSERT_TRUE(deliver(info(1, 3), 2, 0, "xyz", wire::kFlagCharged, 1).ok());
  EXPECT_EQ(next.memory, "xyz");
}

// What other links carry may come after an abandoned message's end, and was charged all the same.
TEST_F(InboxTest, TheCreditOfWhatAnEndOvertakesComesBack) {
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
    // That was all of it.
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
  // The last cancels the first, and leaves its own to the inbox.
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
