// SPDX-License-Identifier: Apache-2.0
// Sockets and their options.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/address.h"
#include "common/port_range.h"

namespace nezha::net {

// A file descriptor that is closed on destruction, and in children of fork() at once. A standard
// one (0 to 2) is replaced by another (common/descriptor.h).
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd);
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// Makes the socket's frames go through `interface` and no other, whatever the routes are.
absl::Status bind_to_interface(int fd, const std::string& interface);
// Returns whether the socket is bound to the interface that has the name now. A socket that was
// bound to an earlier interface of that name stays bound to the earlier one.
bool is_bound_to(int fd, const std::string& interface);

// Returns a non-blocking TCP socket, bound to `address`, whose frames go through `interface` and no
// other, whatever the routes are: two NICs may be on one subnet.
absl::StatusOr<Socket> bound_socket(const std::string& interface, const Address& address);
// Returns such a socket that listens. Remaining connections of an earlier listener do not prevent
// it. Returns kAlreadyExists if the port is taken.
absl::StatusOr<Socket> listening_socket(const std::string& interface, const Address& address);

// Calls `open` with each port of the range in turn, or with 0 if any port will do, until it returns
// anything but kAlreadyExists. If no port is free, the error names the range and `where`.
absl::StatusOr<Socket> open_in_range(const PortRange& ports, absl::string_view where,
                                     absl::FunctionRef<absl::StatusOr<Socket>(uint16_t port)> open);

// Sets options so that small segments go at once and a peer that does not answer is noticed.
void set_stream_options(int fd);

// Makes closing send a reset, which discards what is in the socket's buffers.
void reset_on_close(int fd);

absl::StatusOr<Address> local_address(int fd);

}  // namespace nezha::net
