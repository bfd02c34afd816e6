// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/engine/switch_session.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/flare_offload/engine/switch_session_fixture.h"

namespace nezha::flare {
namespace {

TEST_F(SwitchSessionTest, ExchangesBlocksForResults) {
  start();
  session_->add(0, 3, &one_);
  auto frames = next(3);
  for (uint32_t i = 0; i < 3; ++i) {
    const FrameHeader& header = frames[i].header;
    EXPECT_EQ(header.type, FrameType::kContribution);
    EXPECT_EQ(header.session, kFirstStream);
    EXPECT_EQ(header.generation, 5);
    EXPECT_EQ(header.child, 3);
    EXPECT_FALSE(header.is_down);
    EXPECT_EQ(header.block.seq, i);
    EXPECT_EQ(header.block.operation_id, 1U);
    EXPECT_EQ(frames[i].payload, one_.parts[i]);
  }
  std::reverse(frames.begin(), frames.end());
  answer(frames);
  await_results(one_, 3);
  EXPECT_EQ(one_.order, (std::vector<uint32_t>{2, 1, 0}));
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(one_.results[i], Bytes(kSessionPayload, std::byte(i)));
  }
  EXPECT_EQ(one_.completions, 1);
  EXPECT_EQ(counters_.bytes_sent, 3 * kSessionPayload);
  EXPECT_EQ(counters_.bytes_received, 3 * kSessionPayload);
  EXPECT_EQ(counters_.resent, 0U);
}

TEST_F(SwitchSessionTest, OperationsFollowEachOtherOnAStreamAWindowAtATime) {
  start();
  session_->add(0, 2, &one_);
  session_->add(0, 5, &two_);
  auto frames = next(kSessionWindow);
  EXPECT_EQ(seqs(frames), (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(frames[1].header.block.operation_id, 1U);
  EXPECT_EQ(frames[2].header.block.operation_id, 2U);
  EXPECT_EQ(frames[2].payload, two_.parts[0]);
  answer({frames[2]});
  frames[2] = next(1)[0];
  EXPECT_EQ(frames[2].header.block.seq, 6U);
  answer(frames);
  answer(next(2));
  await_results(two_, 5);
  EXPECT_EQ(one_.completions, 1);
  EXPECT_EQ(two_.completions, 1);
}

TEST_F(SwitchSessionTest, AStreamDoesNotWaitForAnother) {
  start();
  session_->add(0, 8, &one_);
  next(kSessionWindow);
  session_->add(1, 1, &two_);
  const auto frames = next(1);
  EXPECT_EQ(frames[0].header.session, kFirstStream + 1);
  EXPECT_EQ(frames[0].header.block.seq, 0U);
  answer(frames);
  await_results(two_, 1);
  EXPECT_TRUE(one_.order.empty());
}

TEST_F(SwitchSessionTest, SendsAgainWhatIsNotAnswered) {
  start();
  session_->add(0, 2, &one_);
  const auto first = next(2);
  answer({first[0]});
  await_results(one_, 1);
  stage_.pass(200 * kMillisecond);
  const auto again = next(1);
  EXPECT_EQ(again[0].header.block, first[1].header.block);
  EXPECT_EQ(again[0].payload, first[1].payload);
  EXPECT_EQ(counters_.resent, 1U);
  answer(again);
  await_results(one_, 2);
  answer(again);  // a result that comes twice
  answer(first);
  stage_.pass(10 * kSecond);
  EXPECT_EQ(one_.order.size(), 2U);
  EXPECT_EQ(one_.completions, 1);
  EXPECT_TRUE(ends_.empty());
}

TEST_F(SwitchSessionTest, EitherEndAsksForFramesThatTheOtherHasSentInVain) {
  start();
  session_->add(0, 3, &one_);
  const auto frames = next(3);
  FrameHeader lost = down(FrameType::kLost, frames[1].header);
  send(lost, encode_lost({frames[1].header.number, 1}));
  const auto again = next(1);  // though no time has passed
  EXPECT_EQ(again[0].header.block.seq, 1U);
  ++numbers_[kFirstStream];  // a result is lost
  answer({frames[2]});
  const auto asked = next(1);
  EXPECT_EQ(asked[0].header.type, FrameType::kLost);
  EXPECT_EQ(decode_lost(asked[0].payload), (NumberRange{0, 1}));
}

TEST_F(SwitchSessionTest, TellsTheOwnerWhomTheSwitchWaitsForAndOfDisagreement) {
  start();
  session_->add(0, 3, &one_);
  const auto frames = next(3);
  const std::vector<RankRange> missing{{4, 2}, {9, 1}};
  send(down(FrameType::kPending, frames[0].header), encode_ranges(missing));
  const Mismatch mismatch{.length = kSessionPayload,
                          .ranks = {0, 1},
                          .other = {.seq = 1, .operation_id = 77},
                          .other_length = 8,
                          .other_ranks = {1, 1}};
  send(down(FrameType::kMismatch, frames[1].header), encode_mismatch(mismatch));
  send(down(FrameType::kResult, frames[2].header), Bytes(kSessionPayload - 8));
  ASSERT_TRUE(stage_.until([&] { return one_.misfits > 0; }));
  EXPECT_EQ(one_.pendings, (std::vector<std::vector<RankRange>>{missing}));
  ASSERT_EQ(one_.mismatches.size(), 1U);
  EXPECT_EQ(one_.mismatches[0].other.operation_id, 77U);
  EXPECT_TRUE(one_.order.empty());
}

TEST_F(SwitchSessionTest, TakesNothingThatIsNotItsSwitchs) {
  start();
  session_->add(0, 1, &one_);
  const auto frames = next(1);
  const FrameHeader right = down(FrameType::kResult, frames[0].header);
  const Bytes wrong(kSessionPayload, std::byte{0xee});
  std::vector<FrameHeader> others(4, right);
  others[0].is_down = false;
  ++others[1].generation;
  others[2].session = kFirstStream + 2;
  others[3].session = kFirstStream - 1;
  for (const FrameHeader& other : others) send(other, wrong);
  Authenticator other_key(Key{std::byte{8}});
  send(right, wrong, switch_, host_, other_key);
  UdpPort stranger = *UdpPort::open(some_port(), kMaxDatagram);
  send(right, wrong, stranger, host_, authenticator_);
  answer(frames);
  await_results(one_, 1);
  EXPECT_EQ(one_.results[0], Bytes(kSessionPayload, std::byte{0}));
}

TEST_F(SwitchSessionTest, KeepsTheLastWindowOfResultsOfEachStream) {
  start();
  session_->add(0, 6, &one_);
  session_->add(1, 1, &two_);
  answer(next(kSessionWindow + 1));
  answer(next(2));
  await_results(one_, 6);
  await_results(two_, 1);
  std::map<std::pair<uint64_t, size_t>, Bytes> kept;
  for (Retained& part : session_->take_retained()) {
    kept[{part.ordinal, part.offset}] = std::move(part.bytes);
  }
  ASSERT_EQ(kept.size(), kSessionWindow + 1);
  for (const uint32_t block : {2, 3, 4, 5}) EXPECT_EQ((kept[{1, block}]), one_.results[block]);
  EXPECT_EQ((kept[{2, 0}]), two_.results[0]);
  EXPECT_TRUE(session_->take_retained().empty());
}

TEST_F(SwitchSessionTest, CallsNoOwnerThatIsForgotten) {
  start();
  session_->add(0, 8, &one_);
  const auto frames = next(kSessionWindow);
  session_->forget(&one_);
  answer(frames);
  session_->add(1, 1, &two_);
  answer(next(1));
  await_results(two_, 1);
  stage_.pass(50 * kMillisecond);
  EXPECT_TRUE(one_.order.empty());
  EXPECT_EQ(one_.completions, 0);
}

TEST_F(SwitchSessionTest, NothingIsSentOrReceivedAfterStop) {
  start();
  session_->add(0, 2, &one_);
  const auto frames = next(2);
  session_->stop();
  answer(frames);
  session_->add(1, 1, &two_);
  stage_.pass(10 * kSecond);
  next(0);
  EXPECT_TRUE(one_.order.empty());
  EXPECT_TRUE(ends_.empty());
}

TEST_F(SwitchSessionTest, GivesUpASwitchThatIsSilentWhileItIsAwaited) {
  start();
  stage_.pass(60 * kSecond);  // nothing is in flight
  session_->add(0, 1, &one_);
  const auto frames = next(1);
  for (int i = 0; i < 8; ++i) {  // it waits for another rank
    stage_.pass(500 * kMillisecond);
    send(down(FrameType::kPending, frames[0].header),
         encode_ranges(std::vector<RankRange>{{4, 2}}));
    ASSERT_TRUE(stage_.until([&] { return one_.pendings.size() == static_cast<size_t>(i) + 1; }));
  }
  EXPECT_TRUE(ends_.empty());
  for (int i = 0; i < 50; ++i) stage_.pass(100 * kMillisecond);
  ASSERT_EQ(ends_.size(), 1U);
  EXPECT_EQ(ends_[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(says(ends_[0].message(), granted_.address.str()));
  EXPECT_FALSE(session_->is_deaf());
}

TEST_F(SwitchSessionTest, EndsBeforeItsBlocksNumbersAreUsedUp) {
  start();
  session_->add(0, uint32_t{1} << 30, &one_);
  stage_.pass(50 * kMillisecond);
  EXPECT_TRUE(ends_.empty());
  session_->add(0, 1, &two_);
  stage_.pass(50 * kMillisecond);
  ASSERT_EQ(ends_.size(), 1U);
  EXPECT_EQ(ends_[0].code(), absl::StatusCode::kResourceExhausted);
}

// Results for several hosts go to a group, and to one host alone when they are sent again.
class GroupSessionTest : public SwitchSessionTest {
 protected:
  GroupSessionTest() {
    granted_.window = 1;  // so that one block is in flight at a time
    granted_.group = *Address::parse("239.192.7.77:1");
    granted_.group->set_port(granted_.address.port());
    group_ = *UdpPort::join(*granted_.group, "lo", kMaxDatagram);
    EXPECT_TRUE(switch_.reach_groups().ok());
    start();
    session_->add(0, 1000, &one_);
  }
  // Sends the result of the next block, some time after the one before.
  void send_next(const Address& to, Nanos pause) {
    stage_.pass(pause);
    const auto block = static_cast<uint32_t>(one_.order.size());
    ASSERT_TRUE(stage_.until([&] {
      receive();
      return !got_.empty() && got_.back().header.block.seq == block;
    }));
    const FrameHeader header = down(FrameType::kResult, got_.back().header);
    got_.clear();
    send(header, Bytes(kSessionPayload), switch_, to, authenticator_);
    ASSERT_NO_FATAL_FAILURE(await_results(one_, block + 1));
  }
};

TEST_F(GroupSessionTest, EndsIfNothingComesByTheGroup) {
  for (int i = 0; i < 100 && ends_.empty(); ++i) {
    ASSERT_NO_FATAL_FAILURE(send_next(host_, 50 * kMillisecond));
  }
  ASSERT_EQ(ends_.size(), 1U);
  EXPECT_TRUE(session_->is_deaf());
  EXPECT_EQ(ends_[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(says(ends_[0].message(), granted_.group->str()));
}

TEST_F(GroupSessionTest, OccasionalLossesDoNotEndIt) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_NO_FATAL_FAILURE(send_next(i % 5 == 0 ? *granted_.group : host_, 50 * kMillisecond));
  }
  for (int i = 0; i < 100; ++i) ASSERT_NO_FATAL_FAILURE(send_next(host_, 0));
  stage_.pass(50 * kMillisecond);
  EXPECT_FALSE(session_->is_deaf());
  EXPECT_TRUE(ends_.empty());
}

}  // namespace
}  // namespace nezha::flare
