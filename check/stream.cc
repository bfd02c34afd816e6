// SPDX-License-Identifier: Apache-2.0
#include "check/stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace nezha::check {
namespace {

absl::Status late() { return absl::DeadlineExceededError("nothing came within the deadline"); }

}  // namespace

bool await_events(int fd, short events, Nanos deadline) {
  for (;;) {
    const Nanos left = deadline - now();
    pollfd wanted{fd, events, 0};
    // The time is rounded up, so that the loop does not spin in the last millisecond.
    const auto milliseconds = static_cast<int>((left + kMillisecond - 1) / kMillisecond);
    const int ready = poll(&wanted, 1, left <= 0 ? 0 : milliseconds);
    if (ready > 0) return true;
    if (left <= 0) return false;
  }
}

absl::Status Stream::send_some(absl::Span<const std::byte> bytes, size_t& count, Nanos deadline) {
  for (;;) {
    const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      count = static_cast<size_t>(sent);
      return absl::OkStatus();
    }
    if (errno != EAGAIN && errno != EINTR) return absl::AbortedError(strerror(errno));
    if (!await_events(fd(), POLLOUT, deadline)) return late();
  }
}

absl::Status Stream::receive_some(absl::Span<std::byte> bytes, size_t& count, Nanos deadline) {
  for (;;) {
    const ssize_t got = recv(fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      count = static_cast<size_t>(got);
      return absl::OkStatus();
    }
    if (got == 0) return absl::AbortedError("the peer closed the connection");
    if (errno != EAGAIN && errno != EINTR) return absl::AbortedError(strerror(errno));
    if (!await_events(fd(), POLLIN, deadline)) return late();
  }
}

absl::Status Stream::send(absl::Span<const std::byte> bytes, Nanos deadline) {
  while (!bytes.empty()) {
    size_t count = 0;
    if (absl::Status status = send_some(bytes, count, deadline); !status.ok()) return status;
    bytes.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status Stream::receive(absl::Span<std::byte> bytes, Nanos deadline) {
  while (!bytes.empty()) {
    size_t count = 0;
    if (absl::Status status = receive_some(bytes, count, deadline); !status.ok()) return status;
    bytes.remove_prefix(count);
  }
  return absl::OkStatus();
}

}  // namespace nezha::check
