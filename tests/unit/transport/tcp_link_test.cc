#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/tcp/link.h"

namespace nezha::tcp {
namespace {

constexpr size_t kLength = 60'000;

struct SegmentReader final : LinkOwner {
  std::vector<std::byte> memory = std::vector<std::byte>(kLength);
  int landed = 0, frames = 0, failures = 0;

  absl::StatusOr<std::byte*> on_segment(Link&, const wire::FrameHeader&,
                                        const wire::DataHeader&) override {
    return memory.data();
  }
  void on_landed(Link&) override { ++landed; }
  void on_written(Link&, OutSegment&) override {}
  void on_acked(Link&, OutSegment&) override {}
  void on_frame(Link&, const wire::FrameHeader&, absl::Span<const std::byte>) override { ++frames; }
  void on_failed(Link&, const absl::Status&) override { ++failures; }
  uint64_t credit() const override { return wire::kInitialCredit; }
};

// A link whose peer is the test.
class TcpLinkTest : public ::testing::Test {
 protected:
  TcpLinkTest() {
    const Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* name = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener.fd(), name, length), 0);
    EXPECT_EQ(listen(listener.fd(), 1), 0);
    EXPECT_EQ(getsockname(listener.fd(), name, &length), 0);
    peer_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(peer_, name, length), 0);
    Socket accepted(accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    link_ = std::make_unique<TcpLink>(*progress_, nullptr, std::move(accepted), counters_);
    const Progress::Guard guard(*progress_);
    link_->start(&owner_, 0, 1);
    for (size_t i = 0; i < kLength; ++i) sent_[i] = static_cast<std::byte>(i % 251);
  }
  ~TcpLinkTest() override {
    const Progress::Guard guard(*progress_);
    link_.reset();
    close(peer_);
  }

  void write(const void* data, size_t size) const {
    EXPECT_EQ(::send(peer_, data, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  }
  void write_frame(wire::FrameType type, uint32_t length) const {
    std::array<std::byte, wire::kFrameHeaderSize> head{};
    encode(wire::FrameHeader{.type = type, .length = length}, head.data());
    write(head.data(), head.size());
  }
  void begin_segment() const {
    write_frame(wire::FrameType::kData, kLength);
    std::array<std::byte, wire::kDataHeaderSize> head{};
    encode(wire::DataHeader{.info = {.total = kLength}, .number = 1}, head.data());
    write(head.data(), head.size());
  }
  void drive_until(const std::function<bool()>& is_so) {
    Progress::Guard guard(*progress_);
    const Nanos deadline = now() + 60 * kSecond;
    do {  // at least once: what is there already is seen
      Waiter tick;
      progress_->wait(guard, tick, now() + kMillisecond);
    } while (!is_so() && now() < deadline);
    EXPECT_TRUE(is_so());
  }

  std::unique_ptr<Progress> progress_ = *Progress::create();
  RailCounters counters_;
  SegmentReader owner_;
  std::unique_ptr<TcpLink> link_;
  int peer_ = -1;
  std::vector<std::byte> sent_ = std::vector<std::byte>(kLength);
};

constexpr size_t kHead = wire::kFrameHeaderSize + wire::kDataHeaderSize;
constexpr size_t kBegun = 1000, kMore = 30'000;

TEST_F(TcpLinkTest, TheRestOfASegmentIsReadWhenItIsThere) {
  begin_segment();
  write(sent_.data(), kBegun);
  drive_until([&] { return counters_.bytes_received == kBegun; });
  write(sent_.data() + kBegun, kMore);
  // What the kernel keeps has come nevertheless: the link is alive.
  drive_until([&] { return link_->moved() == kHead + kBegun + kMore; });
  EXPECT_EQ(counters_.bytes_received, kBegun);
  write(sent_.data() + kBegun + kMore, kLength - kBegun - kMore);
  drive_until([&] { return owner_.landed == 1; });
  EXPECT_EQ(owner_.memory, sent_);

  const int frames = owner_.frames;
  write_frame(wire::FrameType::kPing, 0);  // short, and read all the same
  drive_until([&] { return owner_.frames == frames + 1; });
}

TEST_F(TcpLinkTest, APeerThatDiesInTheMiddleOfASegmentIsNoticed) {
  begin_segment();
  write(sent_.data(), kBegun);
  drive_until([&] { return counters_.bytes_received == kBegun; });
  write(sent_.data() + kBegun, kMore);
  shutdown(peer_, SHUT_WR);
  drive_until([&] { return owner_.failures == 1; });
}

}  // namespace
}  // namespace nezha::tcp
