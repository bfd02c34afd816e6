// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/net/socket.h"
#include "gtest/gtest.h"
#include "transport/framed_link.h"
#include "transport/progress.h"
#include "transport/tcp/stream.h"
#include "transport/wire.h"

namespace nezha::tcp {
namespace {

struct Owner final : LinkOwner {
  absl::StatusOr<std::byte*> on_segment(Link&, const wire::FrameHeader&,
                                        const wire::DataHeader&) override {
    return nullptr;
  }
  void on_landed(Link&, bool /*is_digested*/) override {}
  void on_written(Link&, OutSegment&) override {}
  void on_acked(Link&, OutSegment&) override {}
  void on_frame(Link&, const wire::FrameHeader&, absl::Span<const std::byte>) override { ++frames; }
  void on_failed(Link&, const absl::Status& why) override { ADD_FAILURE() << why; }
  uint64_t credit() const override { return 0; }

  int frames = 0;
};

// A link, and the bare socket at its other end, which the test reads and writes.
class TcpLinkTest : public ::testing::Test {
 protected:
  static constexpr int kSmallBuffer = 16 << 10;        // bytes
  static constexpr uint32_t kBeyondBuffers = 1 << 20;  // bytes

  TcpLinkTest() : progress_(std::move(*Progress::create())) {
    const net::Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // Set before the connection is made, so that the window is as small.
    setsockopt(listener.fd(), SOL_SOCKET, SO_RCVBUF, &kSmallBuffer, sizeof kSmallBuffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const where = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(listener.fd(), where, length), 0);
    EXPECT_EQ(listen(listener.fd(), 1), 0);
    getsockname(listener.fd(), where, &length);
    net::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &kSmallBuffer, sizeof kSmallBuffer);
    EXPECT_EQ(connect(socket.fd(), where, length), 0);
    peer_ = net::Socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    constexpr timeval kPatience{10, 0};  // missing data is an error after this time
    setsockopt(peer_.fd(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    EXPECT_EQ(fcntl(socket.fd(), F_SETFL, O_NONBLOCK), 0);
    net::set_stream_options(socket.fd());
    link_ = std::make_unique<FramedLink>(*progress_, nullptr,
                                         std::make_unique<TcpStream>(std::move(socket)), counters_);
    const Progress::Guard guard(*progress_);
    link_->start(&owner_, 0, 1);
  }
  ~TcpLinkTest() override {
    const Progress::Guard guard(*progress_);
    link_.reset();
  }

  // Calls with the lock held, which everything that uses the link needs.
  template <typename Call>
  auto locked(Call call) {
    const Progress::Guard guard(*progress_);
    return call();
  }
  // Whether `what` becomes true, within a time that suffices even on a busy machine.
  bool comes_true(const std::function<bool()>& what) {
    for (int i = 0; i < 10'000; ++i) {
      if (locked(what)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  void submit(uint32_t bytes) {
    memory_.resize(bytes);
    segment_.data = memory_.data();
    segment_.length = bytes;
    segment_.header.info.total = bytes;
    locked([&] { link_->submit(segment_); });
  }
  void say(wire::FrameType type, size_t body) {
    wire::FrameHeader header;
    header.type = type;
    header.length = static_cast<uint32_t>(body);
    std::vector<std::byte> bytes(wire::kFrameHeaderSize + body);
    wire::encode(header, bytes.data());
    EXPECT_EQ(::send(peer_.fd(), bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
  }
  std::vector<std::byte> read(size_t bytes) const {
    std::vector<std::byte> result(bytes);
    EXPECT_EQ(recv(peer_.fd(), result.data(), bytes, MSG_WAITALL), ssize_t(bytes));
    return result;
  }
  wire::FrameHeader read_header() const {
    return wire::decode_frame(read(wire::kFrameHeaderSize).data()).value_or(wire::FrameHeader());
  }

  std::unique_ptr<Progress> progress_;
  Owner owner_;
  RailCounters counters_;
  net::Socket peer_;
  std::unique_ptr<FramedLink> link_;
  std::vector<std::byte> memory_;
  OutSegment segment_;
};

TEST_F(TcpLinkTest, ASentPingIsDeliveredAndMovesNothing) {
  locked([&] { link_->send(wire::FrameType::kPing, {}); });
  EXPECT_TRUE(comes_true([&] { return link_->health().delivered == wire::kFrameHeaderSize; }));
  EXPECT_EQ(locked([&] { return link_->health().moved; }), 0u);
}

TEST_F(TcpLinkTest, AReceivedPingMovesNothing) {
  say(wire::FrameType::kPing, 0);
  EXPECT_TRUE(comes_true([&] { return owner_.frames == 1; }));
  EXPECT_EQ(locked([&] { return link_->health().moved; }), 0u);
  say(wire::FrameType::kFiller, 100);
  EXPECT_TRUE(comes_true([&] { return owner_.frames == 2; }));
  EXPECT_EQ(locked([&] { return link_->health().moved; }), 100u);
}

TEST_F(TcpLinkTest, ADeliveredSegmentHasMoved) {
  submit(1000);
  EXPECT_TRUE(comes_true([&] { return link_->health().moved == 1000; }));
}

TEST_F(TcpLinkTest, WhatWaitsForThePeerToReadHasNotMoved) {
  submit(kBeyondBuffers);
  EXPECT_TRUE(comes_true([&] { return link_->health().unanswered == 0; }))
      << "its machine owes nothing";
  EXPECT_LT(locked([&] { return link_->health().moved; }), kBeyondBuffers);
  read(wire::kFrameHeaderSize + wire::kDataHeaderSize + kBeyondBuffers);
  EXPECT_TRUE(comes_true([&] { return link_->health().moved == kBeyondBuffers; }));
}

// If two links asked each other and each took the other's question for an answer, both would wait
// for ever.
TEST_F(TcpLinkTest, APingDoesNotReplaceAnAnswer) {
  submit(kBeyondBuffers);
  locked([&] {
    link_->answer();  // the buffer has no room for it
    link_->send(wire::FrameType::kPing, {});
  });
  EXPECT_EQ(read_header().type, wire::FrameType::kData);
  read(wire::kDataHeaderSize + kBeyondBuffers);
  EXPECT_EQ(read_header().type, wire::FrameType::kPing);
  EXPECT_EQ(read_header().type, wire::FrameType::kAck);
}

}  // namespace
}  // namespace nezha::tcp
