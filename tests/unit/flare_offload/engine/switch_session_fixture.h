// SPDX-License-Identifier: Apache-2.0
// A session with a switch whose part the test plays, over loopback.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "flare_offload/engine/switch_session.h"
#include "gtest/gtest.h"
#include "tests/unit/flare_offload/stage.h"

namespace nezha::flare {

using Bytes = std::vector<std::byte>;

constexpr uint32_t kSessionWindow = 4;
constexpr size_t kSessionPayload = 32;
constexpr uint32_t kFirstStream = 100;  // its session

// An operation, whose blocks differ from each other and from those of other operations.
struct Operated final : BlockOwner {
  explicit Operated(uint32_t its_name) : name(its_name) {}

  BlockId id() const override { return {.operation_id = name, .type = DataType::kUint8}; }
  absl::Span<const std::byte> contribution(uint32_t block) override {
    return parts.try_emplace(block, Bytes(kSessionPayload, std::byte(10 * name + block)))
        .first->second;
  }
  bool take(uint32_t block, absl::Span<const std::byte> result) override {
    if (result.size() != kSessionPayload) return false;
    results[block].assign(result.begin(), result.end());
    order.push_back(block);
    return true;
  }
  void retain(uint32_t block, Retained& copy) const override {
    copy.ordinal = name;
    copy.offset = block;
    copy.bytes = results.at(block);
  }
  void on_complete() override { ++completions; }
  void on_pending(const std::vector<RankRange>& missing) override { pendings.push_back(missing); }
  void on_mismatch(const Frame& frame) override { mismatches.push_back(decode_mismatch(frame)); }
  void on_misfit() override { ++misfits; }

  const uint32_t name;
  std::map<uint32_t, Bytes> parts;
  std::map<uint32_t, Bytes> results;
  std::vector<uint32_t> order;  // of results
  int completions = 0;
  int misfits = 0;
  std::vector<std::vector<RankRange>> pendings;
  std::vector<Mismatch> mismatches;
};

struct ReceivedFrame {
  FrameHeader header;
  Bytes payload;
};

class SwitchSessionTest : public ::testing::Test {
 protected:
  SwitchSessionTest() {
    granted_ = {.request = {},
                .session = kFirstStream,
                .streams = 2,
                .generation = 5,
                .key = Key{std::byte{9}},
                .address = *net::local_address(switch_.fd()),
                .child = 3,
                .window = kSessionWindow,
                .payload = kSessionPayload};
    host_ = *net::local_address(port_.fd());
  }

  void start() {
    session_ = std::make_unique<SwitchSession>(
        stage_.progress(), port_, std::move(group_), granted_, Stagger{}, counters_,
        [this](const absl::Status& why) { ends_.push_back(why); });
    ASSERT_TRUE(session_->start().ok());
  }
  // The switch receives what has been sent.
  void receive() {
    switch_.receive([&](absl::Span<const std::byte> datagram, const Address& from) {
      const auto frame = decode(datagram);
      ASSERT_TRUE(frame && authenticator_.verify(datagram));
      EXPECT_TRUE(from == host_);
      got_.push_back({frame->header, {frame->payload.begin(), frame->payload.end()}});
    });
  }
  // Waits for that many further frames, and for no more than those.
  std::vector<ReceivedFrame> next(size_t count) {
    EXPECT_TRUE(stage_.until([&] {
      receive();
      return got_.size() >= count;
    }));
    for (int i = 0; i < 20; ++i) stage_.round();
    receive();
    EXPECT_EQ(got_.size(), count);
    return std::exchange(got_, {});
  }
  static std::vector<uint32_t> seqs(const std::vector<ReceivedFrame>& frames) {
    std::vector<uint32_t> all;
    for (const ReceivedFrame& frame : frames) all.push_back(frame.header.block.seq);
    return all;
  }
  // A frame from the switch to the host, of a type, for a block.
  FrameHeader down(FrameType type, const FrameHeader& contribution) {
    FrameHeader header = contribution;
    header.type = type;
    header.child = 0;
    header.is_down = true;
    header.is_numbered = false;
    header.number = numbers_[header.session];
    return header;
  }
  void send(const FrameHeader& header, absl::Span<const std::byte> payload) {
    send(header, payload, switch_, host_, authenticator_);
  }
  static void send(const FrameHeader& header, absl::Span<const std::byte> payload, UdpPort& from,
                   const Address& to, Authenticator& authenticator) {
    from.send(encode(header, payload, authenticator, from.buffer()), {&to, 1});
    from.flush();
  }
  void send_result(const FrameHeader& contribution, std::byte value) {
    FrameHeader header = down(FrameType::kResult, contribution);
    header.is_numbered = true;
    ++numbers_[header.session];
    send(header, Bytes(kSessionPayload, value));
  }
  // Answers all of them, with their blocks' numbers.
  void answer(const std::vector<ReceivedFrame>& frames) {
    for (const ReceivedFrame& frame : frames) {
      send_result(frame.header, std::byte(frame.header.block.seq));
    }
  }
  void await_results(const Operated& owner, size_t count) {
    ASSERT_TRUE(stage_.until([&] { return owner.order.size() >= count; }));
  }

  Stage stage_;
  UdpPort switch_ = *UdpPort::open(some_port(), kMaxDatagram);
  UdpPort port_ = *UdpPort::open(some_port(), kMaxDatagram);
  std::optional<UdpPort> group_;
  Address host_;
  message::Granted granted_;
  Authenticator authenticator_{Key{std::byte{9}}};
  std::map<uint32_t, uint16_t> numbers_;  // of the next result, by session
  SessionCounters counters_;
  std::vector<ReceivedFrame> got_;
  std::vector<absl::Status> ends_;
  Operated one_{1};
  Operated two_{2};
  std::unique_ptr<SwitchSession> session_;  // which the owners outlive
};

}  // namespace nezha::flare
