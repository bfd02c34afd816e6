// SPDX-License-Identifier: Apache-2.0
#include "transport/outbox.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/out_of_memory.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/recording_link.h"

namespace nezha {
namespace {

using testing::RecordingLink;

struct FakeSender final : Sender {
  std::vector<std::pair<uint64_t, size_t>> releases;
  int settlements = 0;
  std::vector<absl::Status> failures;
  void released(uint64_t offset, size_t length) override { releases.emplace_back(offset, length); }
  void settled() override { ++settlements; }
  void failed(const absl::Status& why) override { failures.push_back(why); }
  size_t released_bytes() const {
    size_t sum = 0;
    for (const auto& part : releases) sum += part.second;
    return sum;
  }
};

class OutboxTest : public ::testing::Test {
 protected:
  // What a segment of a few bytes uses of the credit.
  static constexpr uint64_t kCharge = wire::charge(1);

  static wire::MessageInfo info(uint64_t tag, uint64_t total) {
    wire::MessageInfo result;
    result.tag = tag;
    result.total = total;
    return result;
  }

  explicit OutboxTest(uint64_t credit = uint64_t{1} << 30) { outbox_.on_credit(credit); }

  OutMessage* send(uint64_t tag, const std::string& text, FakeSender* sender) {
    OutMessage* message = outbox_.open(info(tag, text.size()), Route(), sender);
    if (!text.empty()) {
      outbox_.push(*message, 0, reinterpret_cast<const std::byte*>(text.data()), text.size(),
                   kAnyRail);
    }
    scheduler_.pump();
    return message;
  }
  void up(Rail rail) {
    auto& link = links_.emplace_back(std::make_unique<RecordingLink>());
    at_.resize(std::max(at_.size(), static_cast<size_t>(rail) + 1));
    at_[static_cast<size_t>(rail)] = link.get();
    // The link is fast, so that the scheduler holds little back.
    scheduler_.link_up(rail, link.get(), 1e10);
    scheduler_.pump();
  }
  RecordingLink& link(Rail rail) { return *at_[static_cast<size_t>(rail)]; }
  size_t down(Rail rail) {
    std::deque<OutSegment*> orphans;
    scheduler_.link_down(rail, orphans);
    const size_t resent = outbox_.resend(orphans);
    scheduler_.pump();
    return resent;
  }
  void write_all(Rail rail) {
    const RecycledDeque<OutSegment*> segments = link(rail).unacked_segments;
    for (OutSegment* segment : segments) outbox_.on_written(*segment);
  }
  void ack_one(Rail rail) {
    OutSegment* segment = link(rail).unacked_segments.front();
    link(rail).unacked_segments.pop_front();
    scheduler_.acknowledged(*segment);
    outbox_.on_acked(*segment);
    scheduler_.pump();
  }
  void ack_all(Rail rail) {
    while (!link(rail).unacked_segments.empty()) ack_one(rail);
  }
  static std::string text_of(const OutSegment& segment) {
    return {reinterpret_cast<const char*>(segment.data), segment.length};
  }

  Scheduler scheduler_;
  BufferPool pool_;
  std::vector<std::unique_ptr<RecordingLink>> links_;
  std::vector<RecordingLink*> at_;
  Outbox outbox_{scheduler_, pool_};
};

TEST_F(OutboxTest, MessagesAreNumberedAndNameThePreviousOneOfTheirTag) {
  up(0);
  FakeSender sender;
  send(1, "a", &sender);
  send(2, "b", &sender);
  send(1, "c", &sender);
  ASSERT_EQ(link(0).unacked_segments.size(), 3u);
  EXPECT_EQ(link(0).unacked_segments[0]->header.number, 1u);
  EXPECT_EQ(link(0).unacked_segments[0]->header.previous, 0u);
  EXPECT_EQ(link(0).unacked_segments[1]->header.previous, 0u);
  EXPECT_EQ(link(0).unacked_segments[2]->header.number, 3u);
  EXPECT_EQ(link(0).unacked_segments[2]->header.previous, 2u);
}

TEST_F(OutboxTest, AMessageOfNoBytesIsSentOnceItIsSettled) {
  up(0);
  FakeSender sender;
  OutMessage* message = send(1, "", &sender);
  EXPECT_TRUE(link(0).unacked_segments.empty()) << "its sender has nothing to say yet";
  outbox_.settle(*message);
  scheduler_.pump();
  ASSERT_EQ(link(0).unacked_segments.size(), 1u);
  EXPECT_EQ(link(0).unacked_segments[0]->length, 0u);
  write_all(0);
  EXPECT_EQ(sender.settlements, 1);
}

TEST_F(OutboxTest, AMessageIsAnnouncedOnceBeforeItsData) {
  up(0);
  FakeSender sender;
  OutMessage* message = outbox_.open(info(1, 5), Route(), &sender);
  outbox_.announce(*message);
  outbox_.announce(*message);
  scheduler_.pump();
  ASSERT_EQ(link(0).unacked_segments.size(), 1u);
  EXPECT_EQ(link(0).unacked_segments[0]->length, 0u);
  EXPECT_EQ(link(0).unacked_segments[0]->header.info.total, 5u);
  write_all(0);
  ack_all(0);
  EXPECT_EQ(sender.settlements, 0);
  const std::string text = "hello";
  outbox_.push(*message, 0, reinterpret_cast<const std::byte*>(text.data()), 5, kAnyRail);
  outbox_.settle(*message);
  scheduler_.pump();
  EXPECT_EQ(text_of(*link(0).unacked_segments.front()), text);
  ack_all(0);
  EXPECT_EQ(sender.settlements, 1);
}

TEST_F(OutboxTest, AnUrgentMessageGoesBeforeWhatIsQueued) {
  FakeSender sender;
  const std::string first = "a", second = "b", third = "c", urgent = "urgent";
  send(1, first, &sender);
  send(1, second, &sender);
  OutMessage* message = outbox_.open(info(2, urgent.size()), {.is_urgent = true}, &sender);
  outbox_.push(*message, 0, reinterpret_cast<const std::byte*>(urgent.data()), urgent.size(),
               kAnyRail);
  send(1, third, &sender);
  up(0);
  std::vector<std::string> sent;
  for (const OutSegment* segment : link(0).unacked_segments) sent.push_back(text_of(*segment));
  EXPECT_EQ(sent, (std::vector<std::string>{urgent, first, second, third}));
}

TEST_F(OutboxTest, AcknowledgedMemoryIsReleasedAndTheMessageSettles) {
  up(0);
  FakeSender sender;
  const std::string text(1000, 'x');
  OutMessage* message = send(1, text, &sender);
  EXPECT_TRUE(outbox_.pending());
  EXPECT_TRUE(outbox_.wanted());
  write_all(0);
  ack_all(0);
  EXPECT_EQ(sender.released_bytes(), text.size());
  EXPECT_EQ(sender.settlements, 0);
  outbox_.settle(*message);
  EXPECT_EQ(sender.settlements, 1);
  EXPECT_FALSE(outbox_.pending());
  EXPECT_FALSE(outbox_.wanted());
}

TEST_F(OutboxTest, AWrittenMessageSettlesByCopyingAndItsMemoryIsNotReadAgain) {
  up(0);
  FakeSender sender;
  auto text = std::make_unique<std::string>(5000, 'x');
  OutMessage* message = send(1, *text, &sender);
  outbox_.settle(*message);
  EXPECT_EQ(sender.settlements, 0) << "it has not been written";
  write_all(0);
  EXPECT_EQ(sender.settlements, 1);
  EXPECT_EQ(sender.released_bytes(), 5000u);
  EXPECT_EQ(outbox_.retained_bytes(), 5000u);
  text.reset();
  EXPECT_GT(down(0), 0u);
  up(1);
  std::string arrived;
  for (const OutSegment* segment : link(1).unacked_segments) arrived += text_of(*segment);
  EXPECT_EQ(arrived, std::string(5000, 'x'));
  ack_all(1);
  EXPECT_EQ(outbox_.retained_bytes(), 0u);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
  EXPECT_FALSE(outbox_.pending());
  EXPECT_EQ(sender.settlements, 1);
}

TEST_F(OutboxTest, CopiesAreLimited) {
  up(0);
  FakeSender sender;
  const std::string text(Outbox::kMaxRetained + 1, 'x');
  OutMessage* message = send(1, text, &sender);
  outbox_.settle(*message);
  write_all(0);
  EXPECT_EQ(sender.settlements, 0);
  EXPECT_EQ(outbox_.retained_bytes(), 0u);
  ack_one(0);  // the rest now fits
  EXPECT_EQ(sender.settlements, 1);
  EXPECT_LE(outbox_.retained_bytes(), Outbox::kMaxRetained);
  EXPECT_EQ(sender.released_bytes(), text.size());
}

TEST_F(OutboxTest, AMessageThatWaitsForRoomForItsCopySettlesWhenThereIsRoom) {
  up(0);
  FakeSender large, small;
  const std::string large_text(Outbox::kMaxRetained, 'x'), small_text(1000, 'y');
  OutMessage* first = send(1, large_text, &large);
  outbox_.settle(*first);
  write_all(0);
  ASSERT_EQ(large.settlements, 1);
  OutMessage* second = send(2, small_text, &small);
  outbox_.settle(*second);
  write_all(0);
  EXPECT_EQ(small.settlements, 0);
  // Acknowledges the first message. The second is small, and is acknowledged with whatever comes
  // next.
  while (link(0).unacked_segments.size() > 1) ack_one(0);
  ASSERT_EQ(link(0).unacked_segments.front()->header.number, 2u);
  EXPECT_EQ(outbox_.retained_bytes(), small.settlements == 1 ? 1000u : 0u);
  EXPECT_EQ(small.settlements, 1) << "there is room for its copy";
}

TEST_F(OutboxTest, AnAcknowledgedMessageSettlesWhateverTheRoomForCopies) {
  up(0);
  FakeSender abandoned, acknowledged;
  const std::string large_text(2 * Outbox::kMaxRetained, 'x'), small_text(5000, 'y');
  OutMessage* second = send(2, small_text, &acknowledged);
  write_all(0);
  ack_all(0);
  OutMessage* first = send(1, large_text, &abandoned);
  outbox_.abandon(*first);
  outbox_.settle(*second);
  EXPECT_EQ(acknowledged.settlements, 1);
}

TEST_F(OutboxTest, AfterAbandonTheMemoryIsNotReadAndNothingIsCalled) {
  up(0);
  FakeSender sender;
  auto text = std::make_unique<std::string>(20000, 'x');
  OutMessage* message = send(1, *text, &sender);
  outbox_.abandon(*message);
  text->assign(20000, '!');
  text.reset();
  for (const OutSegment* segment : link(0).unacked_segments) {
    EXPECT_EQ(text_of(*segment), std::string(segment->length, 'x'));
  }
  EXPECT_FALSE(outbox_.wanted());
  write_all(0);
  ack_all(0);
  EXPECT_FALSE(outbox_.pending());
  EXPECT_TRUE(sender.releases.empty());
  EXPECT_EQ(sender.settlements, 0);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

TEST_F(OutboxTest, AbandonWithNothingUnderWayEndsTheMessageOnceTheReceiverKnowsIt) {
  up(0);
  FakeSender sender;
  const std::string text(5000, 'x');
  OutMessage* message = send(1, text, &sender);
  write_all(0);
  ack_all(0);
  outbox_.abandon(*message);
  EXPECT_FALSE(outbox_.pending());
  // Nothing was pushed, but the receiver is told nevertheless, because later messages of the tag
  // follow.
  outbox_.abandon(*outbox_.open(info(2, 10), Route(), &sender));
  EXPECT_TRUE(outbox_.pending());
  scheduler_.pump();
  write_all(0);
  ack_all(0);
  EXPECT_FALSE(outbox_.pending());
}

TEST_F(OutboxTest, ResendKeepsBoundariesAndOrder) {
  up(0);
  FakeSender sender;
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>('a' + i % 26);
  send(1, text, &sender);
  std::vector<std::pair<uint64_t, uint32_t>> sent, resent;
  for (const auto* segment : link(0).unacked_segments) {
    sent.emplace_back(segment->header.offset, segment->length);
  }
  ASSERT_GT(sent.size(), 1u);
  write_all(0);
  EXPECT_EQ(down(0), sent.size());
  up(2);
  for (const auto* segment : link(2).unacked_segments) {
    resent.emplace_back(segment->header.offset, segment->length);
    EXPECT_EQ(text_of(*segment), text.substr(segment->header.offset, segment->length));
  }
  EXPECT_EQ(resent, sent);
  ack_all(2);
  EXPECT_EQ(sender.released_bytes(), text.size());
}

// Otherwise a device that asks for long segments would get shorter ones.
TEST_F(OutboxTest, SegmentsAreAsLongAsTheSchedulerCutsThem) {
  RecordingLink fast;
  scheduler_.link_up(0, &fast, 1e10, {.least_segment = 1 << 20});
  FakeSender sender;
  const std::string text(2 << 20, 'x');
  send(1, text, &sender);
  ASSERT_EQ(fast.unacked_segments.size(), 2u);
  EXPECT_EQ(fast.unacked_segments[0]->length, 1u << 20);
}

TEST_F(OutboxTest, PushesBeforeALinkIsUpAreCutIntoBlindSegments) {
  FakeSender sender;
  const std::string text(3 << 20, 'x');
  send(1, text, &sender);
  up(0);
  uint64_t next = 0;
  while (!link(0).unacked_segments.empty()) {
    const OutSegment& segment = *link(0).unacked_segments.front();
    EXPECT_LE(segment.length, Outbox::kMaxBlindSegment);
    EXPECT_EQ(segment.header.offset, next);
    next += segment.length;
    ack_one(0);
  }
  EXPECT_EQ(next, text.size());
}

// ---- Synchronous messages ------------------------------------------------------------------

class SynchronousTest : public OutboxTest {
 protected:
  OutMessage* send_and_settle(const std::string& text) {
    Route route;
    route.is_synchronous = true;
    OutMessage* message = outbox_.open(info(1, text.size()), route, &sender_);
    if (!text.empty()) {
      outbox_.push(*message, 0, reinterpret_cast<const std::byte*>(text.data()), text.size(),
                   kAnyRail);
    }
    outbox_.settle(*message);
    scheduler_.pump();
    return message;
  }
  bool is_grant_wanted(Rail rail) {
    const auto& segments = link(rail).unacked_segments;
    return std::any_of(segments.begin(), segments.end(), [](const OutSegment* segment) {
      return (segment->flags & wire::kFlagWantGrant) != 0;
    });
  }

  // Acknowledges everything, and returns the lengths of the segments that the link carried.
  std::vector<size_t> ack_until_nothing_is_left(Rail rail) {
    std::vector<size_t> lengths;
    while (!link(rail).unacked_segments.empty()) {
      const OutSegment& segment = *link(rail).unacked_segments.front();
      lengths.push_back(segment.length);
      if ((segment.flags & wire::kFlagWantGrant) != 0) ++asking_;
      write_all(rail);
      ack_one(rail);
    }
    return lengths;
  }

  FakeSender sender_;
  int asking_ = 0;  // the segments in ack_until_nothing_is_left() that ask for the grant
};

TEST_F(SynchronousTest, SettlesOnceTheReceiverHasAskedForIt) {
  up(0);
  const std::string text = "abc";
  const uint64_t number = send_and_settle(text)->number();
  EXPECT_TRUE(is_grant_wanted(0));
  write_all(0);
  ack_all(0);
  EXPECT_EQ(sender_.settlements, 0) << "the peer has it, and has not asked for it";
  outbox_.on_grant(number);
  EXPECT_EQ(sender_.settlements, 1);
}

TEST_F(SynchronousTest, SettlesWhenItIsAcknowledgedAfterItsGrant) {
  up(0);
  const std::string text = "abc";
  const uint64_t number = send_and_settle(text)->number();
  outbox_.on_grant(number);
  EXPECT_EQ(sender_.settlements, 0);
  write_all(0);
  ack_all(0);
  EXPECT_EQ(sender_.settlements, 1);
}

TEST_F(SynchronousTest, AMessageOfNoBytesWaitsForItsGrantToo) {
  up(0);
  const uint64_t number = send_and_settle("")->number();
  EXPECT_TRUE(is_grant_wanted(0));
  write_all(0);
  ack_all(0);
  EXPECT_EQ(sender_.settlements, 0);
  outbox_.on_grant(number);
  EXPECT_EQ(sender_.settlements, 1);
}

TEST_F(SynchronousTest, AsksAgainWhenALinkDiesThatMayHaveHadTheGrant) {
  up(0);
  up(1);
  const std::string text = "abc";
  send_and_settle(text);
  for (const Rail rail : {0, 1}) {
    write_all(rail);
    ack_all(rail);
  }
  down(0);
  EXPECT_TRUE(is_grant_wanted(1));
}

TEST_F(SynchronousTest, AsksOnceHoweverManySegmentsItHas) {
  up(0);
  const std::string text(3 * Outbox::kMaxBlindSegment, 'a');
  send_and_settle(text);
  const std::vector<size_t> segments = ack_until_nothing_is_left(0);
  EXPECT_GT(segments.size(), 2u);
  EXPECT_EQ(asking_, 1);
}

TEST_F(SynchronousTest, SegmentsOfADeadLinkAskAgain) {
  up(0);
  const std::string text(3 * Outbox::kMaxBlindSegment, 'a');
  send_and_settle(text);
  ASSERT_GT(link(0).unacked_segments.size(), 1u);
  ack_one(0);
  ASSERT_FALSE(is_grant_wanted(0)) << "the first one has asked";
  up(1);
  down(0);
  EXPECT_TRUE(is_grant_wanted(1));
}

TEST_F(SynchronousTest, AsksAgainOnceAllIsAcknowledgedIfALinkHasDiedMeanwhile) {
  up(0);
  up(1);
  const std::string text(3 * Outbox::kMaxBlindSegment, 'a');
  send_and_settle(text);
  ack_until_nothing_is_left(0);
  ASSERT_FALSE(link(1).unacked_segments.empty());
  down(0);
  const std::vector<size_t> segments = ack_until_nothing_is_left(1);
  EXPECT_EQ(segments.back(), 0u) << "the last request has no bytes";
  EXPECT_GT(asking_, 0);
}

TEST_F(SynchronousTest, FailsWithItsPeerThoughAllOfItIsAcknowledged) {
  up(0);
  const std::string text = "abc";
  send_and_settle(text);
  write_all(0);
  ack_all(0);
  outbox_.fail(absl::UnavailableError("the peer has died"));
  EXPECT_EQ(sender_.failures.size(), 1u);
}

// ---- Messages that are copied ----------------------------------------------------------------

class CopiedTest : public OutboxTest {
 protected:
  static constexpr Route kCopied{.is_copied = true};

  OutMessage* push_copied(const std::string& text, Rail rail = kAnyRail) {
    OutMessage* message = outbox_.open(info(1, text.size()), kCopied, &sender_);
    outbox_.push(*message, 0, reinterpret_cast<const std::byte*>(text.data()), text.size(), rail);
    return message;
  }

  FakeSender sender_;
};

TEST_F(CopiedTest, IsSettledAtOnceAndItsMemoryIsReadNoMore) {
  std::string text = "abc";
  OutMessage* message = push_copied(text);
  text = "xyz";
  outbox_.settle(*message);
  EXPECT_EQ(sender_.settlements, 1);
  EXPECT_TRUE(sender_.releases.empty());
  EXPECT_FALSE(outbox_.wanted());
  EXPECT_TRUE(outbox_.pending());
  up(0);
  ASSERT_EQ(link(0).unacked_segments.size(), 1u);
  EXPECT_EQ(text_of(*link(0).unacked_segments.front()), "abc");
  write_all(0);
  ack_all(0);
  EXPECT_FALSE(outbox_.pending());
  EXPECT_EQ(outbox_.retained_bytes(), 0u);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
  EXPECT_EQ(sender_.settlements, 1);
}

TEST_F(CopiedTest, IsSettledAtOnceHoweverLongItIs) {
  up(0);
  const std::string text(10 * Outbox::kMaxRetained, 'x');
  outbox_.settle(*push_copied(text));
  EXPECT_EQ(sender_.settlements, 1);
  scheduler_.pump();
  while (!link(0).unacked_segments.empty()) {
    const OutSegment& segment = *link(0).unacked_segments.front();
    EXPECT_EQ(text_of(segment), text.substr(segment.header.offset, segment.length));
    ack_one(0);
  }
  EXPECT_FALSE(outbox_.pending());
}

TEST_F(CopiedTest, AMessageOfNoBytesIsSent) {
  outbox_.settle(*outbox_.open(info(1, 0), kCopied, &sender_));
  EXPECT_EQ(sender_.settlements, 1);
  up(0);
  EXPECT_EQ(link(0).unacked_segments.size(), 1u);
}

// The copy is larger than any address space. Earlier data is still sent, and nothing of the rest
// remains.
TEST_F(CopiedTest, AFailedCopyLeavesNothingBehind) {
  up(0);
  constexpr size_t kTooMuch = size_t{1} << 59;
  const std::string text = "abc";
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  OutMessage* message = outbox_.open(info(1, 3 + kTooMuch), kCopied, &sender_);
  outbox_.push(*message, 0, data, 3, 0);
  scheduler_.pump();
  EXPECT_THROW(outbox_.push(*message, 3, data, kTooMuch, 0), OutOfMemory);
  outbox_.abandon(*message);
  scheduler_.pump();
  ASSERT_EQ(link(0).unacked_segments.size(), 2u);
  const OutSegment& end = *link(0).unacked_segments.back();
  EXPECT_NE(end.flags & wire::kFlagAbandoned, 0);
  EXPECT_EQ(end.header.offset, 3u) << "only three bytes come";
  EXPECT_EQ(outbox_.charged(), kCharge);
  ack_all(0);
  EXPECT_FALSE(outbox_.pending());
  EXPECT_EQ(outbox_.retained_bytes(), 0u);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

// The link was given the copy, and still sends it.
TEST_F(CopiedTest, AbandonWithdrawsNothingFromTheLink) {
  up(0);
  OutMessage* message = push_copied(std::string(5000, 'x'), 0);
  scheduler_.pump();
  outbox_.abandon(*message);
  EXPECT_TRUE(link(0).withdrawn.empty());
  ack_all(0);
  EXPECT_FALSE(outbox_.pending());
}

// ---- Memory that a link may be reading -------------------------------------------------------

TEST_F(OutboxTest, ALinkIsToldOfTheMemoryThatItMayBeReadingAfterTheCopy) {
  up(0);
  FakeSender sender;
  const std::string text(3 * kLongestSegment, 'x');
  OutMessage* message = send(1, text, &sender);
  const RecycledDeque<OutSegment*> submitted = link(0).unacked_segments;
  ASSERT_GE(submitted.size(), 3u);
  outbox_.on_written(*submitted[0]);
  link(0).on_withdraw = [&](const OutSegment& segment) {
    const auto* copy = reinterpret_cast<const char*>(segment.data);
    EXPECT_FALSE(copy >= text.data() && copy < text.data() + text.size());
    EXPECT_EQ(text_of(segment), std::string(segment.length, 'x'));
  };
  outbox_.abandon(*message);
  const auto& withdrawn = link(0).withdrawn;
  const auto is_withdrawn = [&](const OutSegment* segment) {
    return std::count(withdrawn.begin(), withdrawn.end(), segment);
  };
  EXPECT_EQ(is_withdrawn(submitted[0]), 0) << "it is written";
  for (size_t i = 1; i < submitted.size(); ++i) EXPECT_EQ(is_withdrawn(submitted[i]), 1);
  EXPECT_EQ(withdrawn.size(), submitted.size() - 1);
}

TEST_F(OutboxTest, NothingIsWithdrawnFromADeadLink) {
  up(0);
  FakeSender sender;
  const std::string text(5000, 'x');
  OutMessage* message = send(1, text, &sender);
  RecordingLink& dead = link(0);
  down(0);
  outbox_.abandon(*message);
  EXPECT_TRUE(dead.withdrawn.empty());
}

// A link that cannot tell when memory has been read reports nothing before the acknowledgement.
TEST_F(OutboxTest, AMessageSettlesByItsAcknowledgementsAlone) {
  up(0);
  FakeSender sender;
  const std::string text(5000, 'x');
  OutMessage* message = send(1, text, &sender);
  outbox_.settle(*message);
  EXPECT_EQ(outbox_.retained_bytes(), 0u) << "it must not be copied while the peer reads it";
  EXPECT_EQ(sender.settlements, 0);
  ack_all(0);
  EXPECT_EQ(sender.settlements, 1);
  EXPECT_EQ(sender.released_bytes(), text.size());
  EXPECT_TRUE(link(0).withdrawn.empty());
}

// ---- Failure ---------------------------------------------------------------------------------

TEST_F(OutboxTest, AllSendersFailOnce) {
  up(0);
  FakeSender one, two;
  const std::string text(100, 'x');
  send(1, text, &one);
  send(2, text, &two);
  outbox_.fail(absl::UnavailableError("gone"));
  EXPECT_EQ(one.failures.size(), 1u);
  EXPECT_EQ(two.failures.size(), 1u);
  EXPECT_FALSE(outbox_.wanted());
}

// Begins with the initial credit of a channel.
class OutboxCreditTest : public OutboxTest {
 protected:
  OutboxCreditTest() : OutboxTest(wire::kInitialCredit) {}
  OutMessage* send(uint64_t tag, const std::string& text, FakeSender* sender) {
    OutMessage* message = outbox_.open(info(tag, text.size()), Route(), sender);
    outbox_.push(*message, 0, reinterpret_cast<const std::byte*>(text.data()), text.size(), 0);
    scheduler_.pump();
    return message;
  }
};

TEST_F(OutboxCreditTest, AnUrgentMessageThatHadToWaitForItsGrantGoesBeforeWhatIsQueued) {
  FakeSender sender;
  const std::string fits(wire::kInitialCredit, 'x'), text = "urgent";
  send(1, fits, &sender);
  OutMessage* message = outbox_.open(info(2, text.size()), {.is_urgent = true}, &sender);
  outbox_.push(*message, 0, reinterpret_cast<const std::byte*>(text.data()), text.size(), kAnyRail);
  ASSERT_EQ(outbox_.blocked(), 1u);
  outbox_.on_grant(message->number());
  up(0);
  const auto& segments = link(0).unacked_segments;
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(text_of(*segments[0]), text);
  EXPECT_EQ(segments[2]->length, fits.size());
}

TEST_F(OutboxCreditTest, WithoutCreditAMessageIsAnnouncedAndWaitsForItsGrant) {
  up(0);
  FakeSender sender;
  const std::string fits(wire::kInitialCredit, 'x'), more(10, 'y');
  send(1, fits, &sender);
  OutMessage* waits = send(2, more, &sender);
  ASSERT_EQ(link(0).unacked_segments.size(), 2u);
  EXPECT_TRUE(link(0).unacked_segments[0]->flags & wire::kFlagCharged);
  const OutSegment& announcement = *link(0).unacked_segments[1];
  EXPECT_EQ(announcement.length, 0u);
  EXPECT_TRUE(announcement.flags & wire::kFlagWantGrant);
  EXPECT_EQ(announcement.header.number, waits->number());
  outbox_.on_grant(waits->number());
  scheduler_.pump();
  ASSERT_EQ(link(0).unacked_segments.size(), 3u);
  EXPECT_EQ(link(0).unacked_segments[2]->length, more.size());
  EXPECT_FALSE(link(0).unacked_segments[2]->flags & wire::kFlagCharged);
}

TEST_F(OutboxCreditTest, CreditThatComesBackLetsMessagesGoInOrder) {
  up(0);
  FakeSender sender;
  const std::string fits(wire::kInitialCredit, 'x'), more(10, 'y');
  send(1, fits, &sender);
  send(2, more, &sender);
  send(3, more, &sender);
  const size_t before = link(0).unacked_segments.size();
  outbox_.on_credit(wire::kInitialCredit + kCharge * 3 / 2);
  scheduler_.pump();
  ASSERT_EQ(link(0).unacked_segments.size(), before + 1);
  EXPECT_EQ(link(0).unacked_segments.back()->header.number, 2u);
  EXPECT_TRUE(link(0).unacked_segments.back()->flags & wire::kFlagCharged);
  outbox_.on_credit(wire::kInitialCredit + kCharge / 2);  // a late frame; credit only grows
  outbox_.on_credit(wire::kInitialCredit + 2 * kCharge);
  scheduler_.pump();
  ASSERT_EQ(link(0).unacked_segments.size(), before + 2);
  EXPECT_EQ(link(0).unacked_segments.back()->header.number, 3u);
}

TEST_F(OutboxCreditTest, CreditThatComesLateTakesNoneAway) {
  up(0);
  FakeSender sender;
  const std::string fits(wire::kInitialCredit, 'x'), more(10, 'y');
  send(1, fits, &sender);
  outbox_.on_credit(wire::kInitialCredit + kCharge);
  outbox_.on_credit(wire::kInitialCredit + kCharge / 2);  // by a slower link
  send(2, more, &sender);
  ASSERT_EQ(link(0).unacked_segments.size(), 2u);
  EXPECT_EQ(link(0).unacked_segments.back()->length, more.size());
}

TEST_F(OutboxCreditTest, AbandonDropsWhatIsBlocked) {
  up(0);
  FakeSender sender;
  const std::string large(wire::kInitialCredit + 1, 'x');
  OutMessage* message = send(1, large, &sender);
  outbox_.abandon(*message);
  // Whatever grants and credit arrive, only the announcement and the end of the message are sent.
  outbox_.on_grant(1);
  outbox_.on_credit(uint64_t{1} << 40);
  scheduler_.pump();
  ASSERT_EQ(link(0).unacked_segments.size(), 2u);
  EXPECT_EQ(link(0).unacked_segments[0]->length, 0u);
  EXPECT_EQ(link(0).unacked_segments[1]->length, 0u);
  EXPECT_NE(link(0).unacked_segments[1]->flags & wire::kFlagAbandoned, 0);
  ack_all(0);
  EXPECT_FALSE(outbox_.pending());
}

TEST_F(OutboxCreditTest, AbandonFreesTheCreditOfUnsentMessages) {
  FakeSender sender;  // no link is up
  const std::string fits(wire::kInitialCredit, 'x'), more(10, 'y');
  OutMessage* abandoned = send(1, fits, &sender);
  OutMessage* waits = send(2, more, &sender);
  EXPECT_EQ(outbox_.blocked(), 1u);
  outbox_.abandon(*abandoned);
  EXPECT_EQ(outbox_.blocked(), 0u);
  EXPECT_EQ(outbox_.charged(), kCharge);
  up(0);
  std::vector<uint64_t> sent;  // numbers of the messages whose bytes count
  for (const OutSegment* segment : link(0).unacked_segments) {
    if (segment->length == 0) continue;
    sent.push_back(segment->header.number);
    EXPECT_NE(segment->flags & wire::kFlagCharged, 0);
  }
  EXPECT_EQ(sent, std::vector<uint64_t>{waits->number()});
}

TEST_F(OutboxCreditTest, TheEndOfAnAbandonedMessageSaysHowMuchOfItComes) {
  up(0);
  FakeSender sender;
  const std::string text(5000, 'x');
  OutMessage* message = outbox_.open(info(1, 2 * text.size()), Route(), &sender);
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  outbox_.push(*message, 0, data, text.size(), 0);
  scheduler_.pump();  // the link has the first part but not the next one
  outbox_.push(*message, text.size(), data, text.size(), 0);
  outbox_.abandon(*message);
  scheduler_.pump();
  ASSERT_EQ(link(0).unacked_segments.size(), 2u);
  const OutSegment& end = *link(0).unacked_segments.back();
  EXPECT_NE(end.flags & wire::kFlagAbandoned, 0);
  EXPECT_EQ(end.header.offset, text.size());
  EXPECT_EQ(outbox_.charged(), wire::charge(text.size()));
  ack_all(0);
  EXPECT_FALSE(outbox_.pending());
}

// The sender does not know whether the peer has counted the segment. It sends it again, so that
// both ends agree.
TEST_F(OutboxCreditTest, WhatADeadLinkHadIsSentThoughItIsAbandoned) {
  up(0);
  FakeSender sender;
  auto text = std::make_unique<std::string>(5000, 'x');
  OutMessage* message = send(1, *text, &sender);
  down(0);
  outbox_.abandon(*message);
  text.reset();
  up(1);
  ASSERT_FALSE(link(1).unacked_segments.empty());
  const OutSegment& again = *link(1).unacked_segments.front();
  EXPECT_EQ(text_of(again), std::string(5000, 'x'));
  EXPECT_EQ(again.header.attempt, 1u);
  EXPECT_EQ(outbox_.charged(), wire::charge(5000));
  ack_all(1);
  EXPECT_FALSE(outbox_.pending());
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

TEST_F(OutboxCreditTest, WhatADeadLinkOnlyHadQueuedIsDropped) {
  up(0);
  FakeSender sender;
  const std::string text(5000, 'x');
  OutMessage* message = outbox_.open(info(1, text.size()), Route(), &sender);
  outbox_.push(*message, 0, reinterpret_cast<const std::byte*>(text.data()), text.size(), 0);
  down(0);  // before anything was submitted
  outbox_.abandon(*message);
  EXPECT_EQ(outbox_.charged(), 0u);
}

TEST_F(OutboxCreditTest, AGrantedMessageNoLongerWaitsForCredit) {
  up(0);
  FakeSender sender;
  const std::string fits(wire::kInitialCredit, 'x'), more(10, 'y');
  send(1, fits, &sender);
  for (int i = 0; i < 100; ++i) {
    OutMessage* message = send(2, more, &sender);
    EXPECT_EQ(outbox_.blocked(), 1u);
    outbox_.on_grant(message->number());
    EXPECT_EQ(outbox_.blocked(), 0u);
    scheduler_.pump();
    outbox_.settle(*message);
    ack_all(0);
  }
  EXPECT_EQ(outbox_.charged(), wire::kInitialCredit);
}

}  // namespace
}  // namespace nezha
