#include "flare_offload/udp/udp_port.h"

#include <netinet/in.h>
#include <netinet/ip.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nezha::flare {
namespace {

// Room for what all hosts may have in flight while this process waits for a core. Beyond the
// system's limit (net.core.rmem_max) only root gets it; what the kernel gives is enough to go on.
constexpr int kSocketBuffer = 8 << 20;

void widen_buffer(int fd, int forced, int plain) {
  if (setsockopt(fd, SOL_SOCKET, forced, &kSocketBuffer, sizeof kSocketBuffer) != 0) {
    setsockopt(fd, SOL_SOCKET, plain, &kSocketBuffer, sizeof kSocketBuffer);
  }
}

// A datagram that does not fit is an error at once, not fragments of which each may be lost.
void forbid_fragments(int fd, int family) {
  static_assert(IP_PMTUDISC_DO == IPV6_PMTUDISC_DO);
  constexpr int kNever = IP_PMTUDISC_DO;
  if (family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &kNever, sizeof kNever);
  } else {
    setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &kNever, sizeof kNever);
  }
}

}  // namespace

absl::StatusOr<UdpPort> UdpPort::open(const Address& address, size_t datagram) {
  tcp::Socket socket(::socket(address.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.fd() < 0) return absl::ErrnoToStatus(errno, "making a UDP socket");
  if (bind(socket.fd(), address.sockaddr_ptr(), address.length()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("binding a UDP socket to ", address.str()));
  }
  widen_buffer(socket.fd(), SO_RCVBUFFORCE, SO_RCVBUF);
  widen_buffer(socket.fd(), SO_SNDBUFFORCE, SO_SNDBUF);
  forbid_fragments(socket.fd(), address.family());
  return UdpPort(std::move(socket), datagram);
}

UdpPort::UdpPort(tcp::Socket socket, size_t datagram)
    : socket_(std::move(socket)),
      datagram_(datagram),
      in_(kBatch * datagram),
      out_(kBatch * datagram),
      senders_(kBatch),
      in_parts_(kBatch),
      in_headers_(kBatch) {
  for (size_t i = 0; i < kBatch; ++i) {
    in_parts_[i] = {&in_[i * datagram_], datagram_};
    in_headers_[i].msg_hdr.msg_iov = &in_parts_[i];
    in_headers_[i].msg_hdr.msg_iovlen = 1;
    in_headers_[i].msg_hdr.msg_name = &senders_[i].storage;
  }
  out_parts_.reserve(kBatch);
}

size_t UdpPort::receive(
    absl::FunctionRef<void(absl::Span<const std::byte>, const Address&)> handle) {
  for (mmsghdr& header : in_headers_) header.msg_hdr.msg_namelen = sizeof(sockaddr_storage);
  const int count = recvmmsg(fd(), in_headers_.data(), kBatch, MSG_DONTWAIT, nullptr);
  if (count <= 0) return 0;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const bool is_whole = (in_headers_[i].msg_hdr.msg_flags & MSG_TRUNC) == 0;
    if (is_whole) handle({&in_[i * datagram_], in_headers_[i].msg_len}, senders_[i]);
  }
  received_ += static_cast<uint64_t>(count);
  return static_cast<size_t>(count);
}

std::byte* UdpPort::buffer() {
  if (out_parts_.size() == kBatch) flush();
  return &out_[out_parts_.size() * datagram_];
}

void UdpPort::send(size_t size, absl::Span<const Address> to) {
  out_parts_.push_back({&out_[out_parts_.size() * datagram_], size});
  for (const Address& address : to) {
    mmsghdr header{};
    header.msg_hdr.msg_iov = &out_parts_.back();
    header.msg_hdr.msg_iovlen = 1;
    header.msg_hdr.msg_namelen = address.length();
    out_headers_.push_back(header);
    receivers_.push_back(address);
  }
}

void UdpPort::flush() {
  for (size_t i = 0; i < receivers_.size(); ++i) {
    out_headers_[i].msg_hdr.msg_name = &receivers_[i].storage;
  }
  for (size_t next = 0; next < out_headers_.size();) {
    const auto left = static_cast<unsigned>(out_headers_.size() - next);
    const int count = sendmmsg(fd(), &out_headers_[next], left, MSG_DONTWAIT);
    if (count > 0) {
      next += static_cast<size_t>(count);
      sent_ += static_cast<uint64_t>(count);
    } else if (errno != EINTR) {
      // The first one's error: of no room, or of its address alone.
      const size_t lost = errno == EAGAIN ? left : 1;
      next += lost;
      not_sent_ += lost;
    }
  }
  out_headers_.clear();
  receivers_.clear();
  out_parts_.clear();
}

absl::StatusOr<size_t> path_mtu(const Address& to) {
  const tcp::Socket probe(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  int mtu = 0;
  socklen_t length = sizeof mtu;
  const bool is_v6 = to.family() == AF_INET6;
  if (probe.fd() < 0 || connect(probe.fd(), to.sockaddr_ptr(), to.length()) != 0 ||
      getsockopt(probe.fd(), is_v6 ? IPPROTO_IPV6 : IPPROTO_IP, is_v6 ? IPV6_MTU : IP_MTU, &mtu,
                 &length) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("looking for a route to ", to.str()));
  }
  return static_cast<size_t>(mtu);
}

}  // namespace nezha::flare
