// SPDX-License-Identifier: Apache-2.0
#include "transport/ports.h"

#include <memory>

#include "gtest/gtest.h"
#include "tests/unit/transport/port_fixture.h"

namespace nezha {
namespace {

using PortsTest = testing::PortFixture;

TEST_F(PortsTest, APortIsMadeWhenItIsFirstAskedFor) {
  EXPECT_EQ(ports_->find(1), nullptr);
  Port& second = ports_->at(1);
  EXPECT_EQ(ports_->find(1), &second);
  EXPECT_EQ(second.rail(), 1);
  devices_.push_back(std::make_unique<testing::KeptDevice>(2));
  ports_->at(2);
  EXPECT_EQ(&ports_->at(1), &second);
}

TEST_F(PortsTest, NewsGoesByTheFastestLinkThatIsWell) {
  EXPECT_EQ(ports_->best_link(), nullptr);
  ports_->tell(wire::FrameType::kPing, {});  // no link exists, so nothing is sent
  link_up(0, 11, 1e8);
  EXPECT_EQ(ports_->best_link(), &link(0));
  const auto fast = link_up(1, 12, 1e9);
  EXPECT_EQ(ports_->best_link(), &link(1));
  ports_->tell(wire::FrameType::kJoin, {});
  EXPECT_EQ(fast->count(wire::FrameType::kJoin), 1);

  link(1).state.unanswered = kSecond;
  port(1).look(0, 0, now());
  clock_.advance(kSecond);
  port(1).look(0, 0, now());
  ASSERT_TRUE(port(1).is_suspected());
  EXPECT_EQ(ports_->best_link(), &link(0));
  EXPECT_FALSE(ports_->is_last_resort());
  link_down(0);
  EXPECT_EQ(ports_->best_link(), &link(1));
  EXPECT_TRUE(ports_->is_last_resort());
}

TEST_F(PortsTest, AGrantGoesByItsRailIfThatHasALink) {
  const auto slow = link_up(0, 11, 1e8);
  const auto fast = link_up(1, 12, 1e9);
  ports_->send_grant(1, 0);
  EXPECT_EQ(slow->count(wire::FrameType::kGrant), 1);
  ports_->send_grant(2, kAnyRail);
  EXPECT_EQ(fast->count(wire::FrameType::kGrant), 1);
  link_down(0);
  ports_->send_grant(3, 0);
  EXPECT_EQ(fast->count(wire::FrameType::kGrant), 2);
}

TEST_F(PortsTest, AcknowledgementsOfManyEventsGoTogether) {
  const auto one = link_up(0);
  const auto other = link_up(1);
  ports_->ack_soon(port(0));
  ports_->ack_soon(port(0));
  EXPECT_EQ(one->acks, 0);
  progress_->run_deferred();
  EXPECT_EQ(one->acks, 1);
  EXPECT_EQ(other->acks, 0);
  ports_->ack_all_soon();
  progress_->run_deferred();
  EXPECT_EQ(one->acks, 2);
  EXPECT_EQ(other->acks, 1);
}

TEST_F(PortsTest, HeardByOthersExcludesTheGivenPort) {
  link_up(0);
  link_up(1);
  clock_.advance(kSecond);
  port(0).heard(wire::FrameType::kAck);
  EXPECT_EQ(ports_->heard_by_others(port(1)), port(0).last_heard());
  EXPECT_LT(ports_->heard_by_others(port(0)), port(0).last_heard());
}

TEST_F(PortsTest, DataHasArrivedIfOneLinkHasDeliveredAll) {
  EXPECT_FALSE(ports_->has_arrived_by_any());
  link_up(0);
  link_up(1);
  link(0).has_all_arrived = false;
  EXPECT_TRUE(ports_->has_arrived_by_any());
  link(1).has_all_arrived = false;
  EXPECT_FALSE(ports_->has_arrived_by_any());
}

TEST_F(PortsTest, AnAttemptCountsUntilTheHandshakeWouldBeOver) {
  EXPECT_FALSE(ports_->is_connecting());
  port(1).connect(kJob, [](auto&&...) {});
  EXPECT_TRUE(ports_->is_connecting());
  clock_.advance(kSecond);
  EXPECT_FALSE(ports_->is_connecting());
}

TEST_F(PortsTest, ThePeerCanBeAskedByRailsThatWork) {
  EXPECT_EQ(ports_->usable(), 0b11u);
  kept(0).has_carrier = false;
  EXPECT_EQ(ports_->usable(), 0b10u);
  EXPECT_EQ(ports_->describe(), "a: the interface has no carrier; b: no answer yet from b-there");
}

TEST_F(PortsTest, RailsAreMissingAfterLong) {
  link_up(0);
  port(1).is_due(now(), true);
  EXPECT_EQ(ports_->long_missing(), 0u);
  clock_.advance(Outage::kLong);
  EXPECT_EQ(ports_->long_missing(), 0b10u);
}

}  // namespace
}  // namespace nezha
