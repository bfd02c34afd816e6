// SPDX-License-Identifier: Apache-2.0
// A connection whose calls block until a deadline, for a thread of its own.
#pragma once

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/net/socket.h"

namespace nezha::check {

// Waits until the descriptor has one of poll's events. Returns false if the deadline came first.
bool await_events(int fd, short events, Nanos deadline);

// The class is not thread-safe. Its errors are kDeadlineExceeded or kAborted, with the kernel's
// reason.
class Stream {
 public:
  // Takes a connected socket that does not block.
  explicit Stream(net::Socket socket) : socket_(std::move(socket)) {}

  // These move all of the bytes.
  absl::Status send(absl::Span<const std::byte> bytes, Nanos deadline);
  absl::Status receive(absl::Span<std::byte> bytes, Nanos deadline);
  // These move some bytes, as many as can be moved at once: at least one, or they return an error.
  absl::Status receive_some(absl::Span<std::byte> bytes, size_t& count, Nanos deadline);
  absl::Status send_some(absl::Span<const std::byte> bytes, size_t& count, Nanos deadline);

  int fd() const { return socket_.fd(); }

 private:
  net::Socket socket_;
};

}  // namespace nezha::check
