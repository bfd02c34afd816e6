// SPDX-License-Identifier: Apache-2.0
// What the tcp rail needs of the kernel: addresses, interfaces, sockets.
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
#include "common/port_range.h"

namespace nezha::tcp {

// A file descriptor that is closed when it goes, and in children of fork() at once. A standard one
// (0 to 2) is replaced by another (common/descriptor.h).
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

// An IPv4 or IPv6 address and a port.
struct Address {
  sockaddr_storage storage{};

  static absl::StatusOr<Address> parse(absl::string_view text);       // as str() gives it
  static absl::StatusOr<Address> parse_host(absl::string_view text);  // as host() does; port 0
  // As the kernel has it, in network order, with port 0. Nothing: it is not of the family's size.
  static std::optional<Address> from_bytes(int family, const void* bytes, size_t size);
  std::string str() const;   // 10.0.0.1:80, [fd00::1]:80
  std::string host() const;  // 10.0.0.1, fd00::1

  sockaddr* sockaddr_ptr() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* sockaddr_ptr() const { return reinterpret_cast<const sockaddr*>(&storage); }
  socklen_t length() const {
    return storage.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  }
  int family() const { return storage.ss_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  bool is_link_local() const;      // IPv6's, which are valid on one interface only
  void set_scope(unsigned index);  // of the interface
  bool is_multicast() const;

  // The same family, address and port, and of link-local ones the same interface.
  friend bool operator==(const Address& a, const Address& b);
};

// The socket's frames go through `interface` and no other, whatever the routes say.
absl::Status bind_to_interface(int fd, const std::string& interface);
// Whether the socket is bound to the interface that has the name now. One that was bound to an
// earlier one of the name stays with that.
bool is_bound_to(int fd, const std::string& interface);

// A TCP socket that does not block, at `address`, and whose frames go through `interface` and no
// other, whatever the routes say: two NICs may be on one subnet.
absl::StatusOr<Socket> bound_socket(const std::string& interface, const Address& address);
// Such a socket that listens. What is left of an earlier listener's connections is no hindrance.
// kAlreadyExists: the port is taken.
absl::StatusOr<Socket> listening_socket(const std::string& interface, const Address& address);

// Calls `open` with each port of the range in turn, until it returns anything but kAlreadyExists;
// with 0 if any port will do. The error names the range and `where` no port of it was free.
absl::StatusOr<Socket> open_in_range(const PortRange& ports, absl::string_view where,
                                     absl::FunctionRef<absl::StatusOr<Socket>(uint16_t port)> open);

// Small segments go at once; a peer that does not answer is noticed.
void set_stream_options(int fd);

// Closing sends a reset: what is in the socket's buffers is thrown away.
void reset_on_close(int fd);

absl::StatusOr<Address> local_address(int fd);

}  // namespace nezha::tcp
