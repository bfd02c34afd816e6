// SPDX-License-Identifier: Apache-2.0
#include "transport/context_news.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/unit/transport/port_fixture.h"

namespace nezha {
namespace {

class ContextNewsTest : public testing::PortFixture {
 protected:
  static absl::Span<const std::byte> bytes(const std::string& body) {
    return {reinterpret_cast<const std::byte*>(body.data()), body.size()};
  }
  void hear(wire::FrameType type, const std::string& body = "") {
    news_.on_frame(type, bytes(body));
  }
  static wire::Abort abort_of(const UniqueId& job) {
    wire::Abort abort;
    abort.context = job;
    return abort;
  }

  Outbox outbox_{scheduler_, pool_};
  Inbox inbox_{*ports_, pool_};
  ContextNews news_{*this, contact_, *ports_, outbox_, inbox_};
};

TEST_F(ContextNewsTest, ThePeerIsToldOnceAndAgainAfterALoss) {
  news_.enter(kJob);
  const auto frames = link_up(0);
  news_.link_up(link(0));
  EXPECT_EQ(frames->count(wire::FrameType::kJoin), 1);
  news_.enter(kJob);
  EXPECT_EQ(frames->count(wire::FrameType::kJoin), 1);
  news_.link_down();  // another link has died
  EXPECT_EQ(frames->count(wire::FrameType::kJoin), 2);
}

TEST_F(ContextNewsTest, WhoClosesAContextSaysSo) {
  const auto frames = link_up(0);
  news_.enter(kJob);
  news_.close(kJob);
  EXPECT_EQ(frames->count(wire::FrameType::kLeave), 1);
  EXPECT_EQ(frames->acks, 1) << "the peer may wait for no more than that";
  EXPECT_FALSE(news_.has_open());
  news_.link_down();  // another link has died, perhaps before it sent the frame
  EXPECT_EQ(frames->count(wire::FrameType::kLeave), 2);
}

TEST_F(ContextNewsTest, SendsOnlyTheAbortOfABrokenContext) {
  const auto frames = link_up(0);
  news_.enter(kJob);
  EXPECT_TRUE(news_.has_future());
  aborts_.push_back(abort_of(kJob));
  EXPECT_FALSE(news_.has_future());
  news_.send_abort(aborts_.front());
  news_.close(kJob);
  EXPECT_EQ(frames->count(wire::FrameType::kAbort), 1);
  EXPECT_EQ(frames->count(wire::FrameType::kLeave), 0);
}

TEST_F(ContextNewsTest, SendsAnAbortOnlyToMembersOfTheContext) {
  const auto frames = link_up(0);
  news_.enter(kJob);
  news_.send_abort(abort_of(kOtherJob));
  news_.send_roll_call({});
  EXPECT_EQ(frames->count(wire::FrameType::kAbort), 0);
  EXPECT_EQ(frames->count(wire::FrameType::kRollCall), 0);
}

TEST_F(ContextNewsTest, WhoEntersABrokenContextIsTold) {
  const auto frames = link_up(0);
  aborts_.push_back(abort_of(kOtherJob));
  hear(wire::FrameType::kJoin, wire::encode_id(kOtherJob));
  EXPECT_TRUE(news_.contains(kOtherJob));
  EXPECT_EQ(frames->count(wire::FrameType::kAbort), 1);
}

TEST_F(ContextNewsTest, AGoodbyeEndsAllContextsAndSendsAcknowledgements) {
  const auto frames = link_up(0);
  news_.enter(kJob);
  hear(wire::FrameType::kGoodbye);
  progress_->run_deferred();
  EXPECT_EQ(frames->acks, 1);
  EXPECT_TRUE(news_.has_peer_left());
  EXPECT_FALSE(news_.has_left(kJob.low)) << "what it sent may still be on its way";
  EXPECT_FALSE(news_.has_future());
  EXPECT_NE(news_.left_error().message().find("its process has ended"), std::string::npos);
}

TEST_F(ContextNewsTest, RepeatsTheGoodbyeOnEachNewLink) {
  const auto first = link_up(0);
  news_.say_goodbye();
  EXPECT_EQ(first->count(wire::FrameType::kGoodbye), 1);
  const auto second = link_up(1);
  news_.link_up(link(1));
  EXPECT_EQ(first->count(wire::FrameType::kGoodbye), 1);
  EXPECT_EQ(second->count(wire::FrameType::kGoodbye), 1);
}

TEST_F(ContextNewsTest, ThePeerLeavesOneContextAndNoOther) {
  news_.enter(kJob);
  news_.enter(kOtherJob);
  hear(wire::FrameType::kLeave, wire::encode_id(kJob));
  EXPECT_TRUE(news_.has_left(kJob.low));
  EXPECT_FALSE(news_.has_left(kOtherJob.low));
  EXPECT_TRUE(news_.has_future());
  EXPECT_EQ(*news_.next(0), kOtherJob);
  EXPECT_NE(news_.left_error().message().find("it closed its context"), std::string::npos);
}

TEST_F(ContextNewsTest, IgnoresMalformedNews) {
  for (const auto type : {wire::FrameType::kAbort, wire::FrameType::kLeave, wire::FrameType::kJoin,
                          wire::FrameType::kRollCall}) {
    hear(type, "x");
  }
  EXPECT_EQ(heard_aborts_, 0);
  EXPECT_FALSE(news_.has_open());
}

}  // namespace
}  // namespace nezha
