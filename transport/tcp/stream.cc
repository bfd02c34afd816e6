// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/stream.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace nezha::tcp {
namespace {

// Returns all zeros if the kernel does not tell.
tcp_info kernel_info(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
  return info;
}

}  // namespace

ssize_t TcpStream::receive(absl::Span<const iovec> parts) {
  return parts.size() == 1 ? ::recv(socket_.fd(), parts[0].iov_base, parts[0].iov_len, 0)
                           : ::readv(socket_.fd(), parts.data(), static_cast<int>(parts.size()));
}

// Short data is put together here, which takes less time than the kernel needs to gather it.
ssize_t TcpStream::send(absl::Span<const iovec> parts) {
  std::array<std::byte, kShortWrite> whole;
  size_t bytes = 0;
  for (const iovec& part : parts) {
    if (part.iov_len > kShortWrite - bytes) {
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(parts.data());
      message.msg_iovlen = parts.size();
      return ::sendmsg(socket_.fd(), &message, MSG_NOSIGNAL);
    }
    std::memcpy(whole.data() + bytes, part.iov_base, part.iov_len);
    bytes += part.iov_len;
  }
  return ::send(socket_.fd(), whole.data(), bytes, MSG_NOSIGNAL);
}

void TcpStream::stop() noexcept { ::shutdown(socket_.fd(), SHUT_RDWR); }

void TcpStream::finish() { ::shutdown(socket_.fd(), SHUT_WR); }

uint64_t TcpStream::queued() const {
  int bytes = 0;
  return ioctl(socket_.fd(), SIOCOUTQ, &bytes) == 0 ? static_cast<uint64_t>(bytes) : 0;
}

size_t TcpStream::largest_packet() const {
  constexpr size_t kTcpHeader = 20, kTimestamps = 12, kIpv4Header = 20, kIpv6Header = 40;
  const tcp_info info = kernel_info(socket_.fd());
  if (info.tcpi_snd_mss == 0) return 0;
  int family = AF_INET;
  socklen_t length = sizeof family;
  getsockopt(socket_.fd(), SOL_SOCKET, SO_DOMAIN, &family, &length);
  const bool has_timestamps = (info.tcpi_options & TCPI_OPT_TIMESTAMPS) != 0;
  return info.tcpi_snd_mss + kTcpHeader + (has_timestamps ? kTimestamps : 0) +
         (family == AF_INET6 ? kIpv6Header : kIpv4Header);
}

Link::Health TcpStream::health() const {
  const tcp_info info = kernel_info(socket_.fd());
  Link::Health health;
  // If nothing is in flight, the peer may have closed its window because its process reads nothing.
  if (info.tcpi_unacked != 0) {
    health.unanswered = std::max<Nanos>(1, info.tcpi_last_ack_recv * kMillisecond);
  }
  // The mean round trip and four times its deviation (RFC 6298, section 2.3). On a path whose queue
  // is full, the round trip may deviate by little and yet double.
  const Nanos mean = info.tcpi_rtt * kMicrosecond;
  health.confirmation_time = mean + std::max(mean, 4 * info.tcpi_rttvar * kMicrosecond);
  // A packet that the peer's kernel got twice was not lost.
  const uint32_t twice = std::min(info.tcpi_total_retrans, info.tcpi_dsack_dups);
  health.packets = {info.tcpi_data_segs_out, info.tcpi_total_retrans - twice};
  return health;
}

}  // namespace nezha::tcp
