// SPDX-License-Identifier: Apache-2.0
// A scripted channel between two sides.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/transport/channel_fixture.h"
#include "tests/unit/transport/fake_link.h"

namespace nezha::testing {

class ChannelScript : public ChannelTest {
 public:
  static constexpr size_t kLarge = wire::kInitialCredit + (64 << 10);

 protected:
  // Connects two sides by a link on each rail.
  void connect(int rails, std::vector<Nanos> burst_takes = {}) {
    network_ = std::make_unique<FakeNetwork>(*progress_, 1, rails);
    network_->burst_takes = std::move(burst_takes);
    auto& first = send(0, 90, 1);
    auto& answer = receive(1, 90, 1);
    network_->settle_down();
    ASSERT_TRUE(first.is_settled);
    ASSERT_TRUE(answer.complete);
    for (const int side : {0, 1}) ASSERT_EQ(std::popcount(channel(side).up()), rails);
  }
  // As connect(); everything is acknowledged, and no side waits for anything.
  void connect_and_rest() {
    connect(2);
    pass(200 * kMillisecond);
  }
  ~ChannelScript() override { network_.reset(); }

  Channel& channel(int side) { return network_->channel(side); }
  uint64_t failures(int side) {
    uint64_t sum = 0;
    for (const auto& device : network_->side(side).devices) sum += device->counters().failures;
    return sum;
  }
  static wire::MessageInfo info(uint64_t tag, uint64_t total) {
    wire::MessageInfo result;
    result.context = FakeNetwork::kJob.low;
    result.tag = tag;
    result.total = total;
    return result;
  }
  // Sends a whole message at once.
  TestSender& send(int side, uint64_t tag, size_t bytes, RailMask rails = kAllRails) {
    TestSender& sender = *senders_.emplace_back(std::make_unique<TestSender>(tag, bytes));
    sender.message = channel(side).open(info(tag, bytes), {.rails = rails}, &sender);
    channel(side).push(*sender.message, 0, sender.memory.data(), bytes);
    sender.settling = true;
    channel(side).settle(*sender.message);
    return sender;
  }
  TestReceiver& receive(int side, uint64_t tag, size_t bytes) {
    TestReceiver& receiver =
        *receivers_.emplace_back(std::make_unique<TestReceiver>(tag, info(tag, bytes)));
    Inbox::Ticket* ticket = channel(side).post(receiver.info, &receiver);
    if (!receiver.over()) receiver.ticket = ticket;
    return receiver;
  }
  // Breaks all connections; nothing in flight arrives.
  void cut_all(bool silent = false) {
    for (const auto& connection : network_->connections()) {
      network_->break_connection(*connection, silent);
      for (auto& end : connection->ends) end.readable = 0;
    }
  }
  // The fraction of a message from side 0 that goes by rail 1.
  double share_of_1(uint64_t tag) {
    const auto submitted = [&](Rail rail) {
      return static_cast<double>(network_->connection(rail)->ends[0].submitted);
    };
    const double before[] = {submitted(0), submitted(1)};
    receive(1, tag, 256 << 10);
    send(0, tag, 256 << 10);
    network_->settle_down();
    const double more[] = {submitted(0) - before[0], submitted(1) - before[1]};
    return more[1] / (more[0] + more[1]);
  }
  int burst_frames(Rail rail) { return network_->connection(rail)->ends[0].burst_frames; }
  // The rail that side 0 chooses for a short message.
  Rail rail_of_short(uint64_t tag) {
    const uint64_t before = network_->connection(1)->ends[0].submitted;
    receive(1, tag, 1000);
    send(0, tag, 1000);
    network_->settle_down();
    return network_->connection(1)->ends[0].submitted == before ? 0 : 1;
  }
  // Side 0 loses one in twenty of the packets that it sends on this rail, for a while.
  void lose_much(Rail rail) {
    Link::Packets& packets = network_->connection(rail)->ends[0].packets;
    for (int i = 0; i < 2; ++i) {
      packets.sent += 1000;
      packets.lost += 50;
      pass(50 * kMillisecond);
    }
  }
  // Sends a message that needs a grant, because another message, which nobody receives, has used up
  // the credit.
  TestSender& send_beyond_credit() {
    send(0, 80, wire::kInitialCredit);
    TestSender& sender = send(0, 1, kLarge);
    network_->settle_down();
    return sender;
  }
  void pass(Nanos time) {
    for (const Nanos end = now() + time; now() < end;) {
      network_->settle_down();
      clock_.advance(5 * kMillisecond);
      run_timers();
    }
    network_->settle_down();
  }

  std::vector<std::unique_ptr<TestSender>> senders_;
  std::vector<std::unique_ptr<TestReceiver>> receivers_;
  std::unique_ptr<FakeNetwork> network_;
};

}  // namespace nezha::testing
