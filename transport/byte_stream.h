// SPDX-License-Identifier: Apache-2.0
// A connection that carries bytes in order and in both directions: TCP, or what runs over it.
// FramedLink makes a link of it.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>

#include "absl/types/span.h"
#include "transport/link.h"

namespace nezha {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // Returns the descriptor by which epoll(7) tells when the stream can be read or written.
  virtual int fd() const = 0;

  // Both work as readv(2) and writev(2) do on a descriptor that does not block, errno included.
  // Both may run without Progress's lock, beside anything but another call of the same function.
  virtual ssize_t receive(absl::Span<const iovec> parts) = 0;
  virtual ssize_t send(absl::Span<const iovec> parts) = 0;

  // Nothing more comes or goes, and the peer sees the stream's end.
  virtual void stop() noexcept = 0;
  // The peer gets all that was sent, and then the stream's end.
  virtual void finish() = 0;
  // When the stream is destroyed, what the peer's machine has not got yet is thrown away.
  virtual void abandon() = 0;

  // Returns how many bytes were sent and are not confirmed by the peer's machine.
  virtual uint64_t queued() const = 0;
  virtual size_t largest_packet() const = 0;
  // Returns what Link::health does, without `delivered` and `moved`, which FramedLink knows.
  virtual Link::Health health() const = 0;
};

}  // namespace nezha
