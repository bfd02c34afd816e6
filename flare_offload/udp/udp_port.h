// A UDP socket that receives and sends datagrams by the batch: in a software switch system calls,
// not additions, take the time.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transport/tcp/socket.h"

namespace nezha::flare {

using tcp::Address;

// Not thread-safe. Never blocks: what the kernel has no room for is dropped and counted, as a
// network drops it.
class UdpPort {
 public:
  // Bound to `address`, for datagrams of at most `datagram` bytes.
  static absl::StatusOr<UdpPort> open(const Address& address, size_t datagram);

  int fd() const { return socket_.fd(); }

  // Calls `handle` with each datagram of a batch and its sender, and returns how many there were;
  // one that is longer than any may be is left out. 0: there is nothing to receive.
  size_t receive(absl::FunctionRef<void(absl::Span<const std::byte>, const Address&)> handle);

  // Where the next datagram is to be written, before send() is called with its size.
  std::byte* buffer();
  // Queues that datagram, to each of the receivers.
  void send(size_t size, absl::Span<const Address> to);
  // Sends what is queued.
  void flush();

  uint64_t received() const { return received_; }
  uint64_t sent() const { return sent_; }
  uint64_t not_sent() const { return not_sent_; }  // dropped, for want of room or of a route

 private:
  // Enough for the cost of a system call not to show, few enough to stay in the cache.
  static constexpr size_t kBatch = 64;

  UdpPort(tcp::Socket socket, size_t datagram);

  tcp::Socket socket_;
  size_t datagram_;
  std::vector<std::byte> in_;   // kBatch datagrams
  std::vector<std::byte> out_;  // likewise
  std::vector<Address> senders_;
  std::vector<iovec> in_parts_;
  std::vector<mmsghdr> in_headers_;
  std::vector<iovec> out_parts_;  // those queued; the memory is reserved, since headers point to it
  std::vector<mmsghdr> out_headers_;
  std::vector<Address> receivers_;  // one for each of these
  uint64_t received_ = 0;
  uint64_t sent_ = 0;
  uint64_t not_sent_ = 0;
};

// The MTU of the route to an address. An error names the address.
absl::StatusOr<size_t> path_mtu(const Address& to);

}  // namespace nezha::flare
