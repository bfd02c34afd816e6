// SPDX-License-Identifier: Apache-2.0
// One TCP connection as a stream of bytes, and what the kernel reports about it.
#pragma once

#include "common/net/socket.h"
#include "transport/byte_stream.h"

namespace nezha::tcp {

class TcpStream final : public ByteStream {
 public:
  // `socket` is connected, and the handshake is over.
  explicit TcpStream(net::Socket socket) : socket_(std::move(socket)) {}

  int fd() const override { return socket_.fd(); }
  ssize_t receive(absl::Span<const iovec> parts) override;
  ssize_t send(absl::Span<const iovec> parts) override;
  void stop() noexcept override;
  void finish() override;
  void abandon() override { net::reset_on_close(socket_.fd()); }
  uint64_t queued() const override;
  size_t largest_packet() const override;
  Link::Health health() const override;

 private:
  static constexpr size_t kShortWrite = 2 << 10;  // bytes

  net::Socket socket_;
};

}  // namespace nezha::tcp
