// What the tcp rail needs of the kernel: addresses, interfaces, sockets.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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

  static absl::StatusOr<Address> parse(absl::string_view text);  // as str() gives it
  std::string str() const;                                       // 10.0.0.1:80, [fd00::1]:80

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

// The address that `interface` has of the family (AF_INET, AF_INET6, or AF_UNSPEC: IPv4 if there
// is one). The port is 0. Names the interfaces there are if it is none of them.
absl::StatusOr<Address> interface_address(const std::string& interface, int family);

// Whether the interface is up and has a carrier.
bool interface_running(const std::string& interface);

// The socket's frames go through `interface` and no other, whatever the routes say.
absl::Status bind_to_interface(int fd, const std::string& interface);

// A TCP socket that does not block, at `address`, and whose frames go through `interface` and no
// other, whatever the routes say: two NICs may be on one subnet.
absl::StatusOr<Socket> bound_socket(const std::string& interface, const Address& address);

// Small segments go at once; a peer that does not answer is noticed.
void set_stream_options(int fd);

// Closing sends a reset: what is in the socket's buffers is thrown away.
void reset_on_close(int fd);

absl::StatusOr<Address> local_address(int fd);

}  // namespace nezha::tcp
