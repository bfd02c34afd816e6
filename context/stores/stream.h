// SPDX-License-Identifier: Apache-2.0
// A byte stream to a server, by TCP or a Unix socket. No call waits beyond its deadline.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/net/socket.h"

namespace nezha {

// A connection to a server. Its errors are Unavailable if trying again may help (refused, lost, the
// name server is not there), DeadlineExceeded, or NotFound for a host that does not exist. After an
// error the stream may not be used again. The class is not thread-safe.
class Stream {
 public:
  // Tries all the host's addresses in turn. An error says why each of them failed.
  static absl::StatusOr<Stream> to_host(const std::string& host, uint16_t port, Nanos deadline);
  static absl::StatusOr<Stream> to_socket(const std::string& path, Nanos deadline);

  absl::Status send(absl::string_view bytes, Nanos deadline);
  // Waits for at least one byte. Returns how many bytes are in `buffer`.
  absl::StatusOr<size_t> receive(absl::Span<char> buffer, Nanos deadline);

 private:
  explicit Stream(net::Socket socket) : socket_(std::move(socket)) {}
  static absl::StatusOr<Stream> connect(const sockaddr* address, socklen_t length, Nanos deadline);

  net::Socket socket_;
};

}  // namespace nezha
