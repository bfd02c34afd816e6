// SPDX-License-Identifier: Apache-2.0
#include "common/net/socket.h"

#include <linux/tcp.h>
#include <net/if.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/descriptor.h"
#include "common/fork.h"
#include "common/shortage.h"

namespace nezha::net {
namespace {

// How long data may stay unacknowledged by the peer's kernel, in milliseconds. While the pair has
// another link the channel notices sooner, so this is for the last link.
constexpr int kUserTimeout = 10'000;

void set_option(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

// Returns errno's error: kAlreadyExists if another socket is at the address.
absl::Status binding_error(const Address& address) {
  const int error = errno;
  const std::string what = absl::StrCat("binding a socket to ", address.str());
  if (error == EADDRINUSE)
    return absl::AlreadyExistsError(absl::StrCat(what, ": ", strerror(error)));
  return system_error(error, what);
}

absl::StatusOr<Socket> make_bound(const std::string& interface, const Address& address,
                                  bool listens) {
  Socket made(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made.fd() < 0) return system_error(errno, "making a socket");
  if (absl::Status status = bind_to_interface(made.fd(), interface); !status.ok()) return status;
  if (listens) set_option(made.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(made.fd(), address.sockaddr_ptr(), address.length()) != 0) return binding_error(address);
  return made;
}

}  // namespace

Socket::Socket(int fd) : fd_(above_standard(fd)) {
  if (fd_ >= 0) close_in_children(fd_);
}

Socket::~Socket() {
  if (fd_ >= 0) close_ours(fd_);
}

absl::Status bind_to_interface(int fd, const std::string& interface) {
  if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, interface.data(),
                 static_cast<socklen_t>(interface.size())) != 0) {
    return system_error(errno, absl::StrCat("binding a socket to ", interface));
  }
  return absl::OkStatus();
}

bool is_bound_to(int fd, const std::string& interface) {
  std::array<char, IFNAMSIZ> name{};
  socklen_t size = name.size();
  return getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name.data(), &size) == 0 &&
         interface == name.data();
}

absl::StatusOr<Socket> bound_socket(const std::string& interface, const Address& address) {
  return make_bound(interface, address, /*listens=*/false);
}

absl::StatusOr<Socket> listening_socket(const std::string& interface, const Address& address) {
  auto made = make_bound(interface, address, /*listens=*/true);
  if (made.ok() && ::listen(made->fd(), SOMAXCONN) != 0) return binding_error(address);
  return made;
}

absl::StatusOr<Socket> open_in_range(
    const PortRange& ports, absl::string_view where,
    absl::FunctionRef<absl::StatusOr<Socket>(uint16_t port)> open) {
  if (ports.is_any()) return open(0);
  for (int port = ports.first; port <= ports.last; ++port) {
    auto opened = open(static_cast<uint16_t>(port));
    if (!absl::IsAlreadyExists(opened.status())) return opened;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no port of ", ports.str(), " is free at ", where,
                   "; every process and every Gloo context on a host needs one: give a wider range "
                   "in NEZHA_PORTS or ContextOptions::ports"));
}

void set_stream_options(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeout);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 5);
}

void reset_on_close(int fd) {
  const linger option{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &option, sizeof option);
}

absl::StatusOr<Address> local_address(int fd) {
  Address address;
  socklen_t length = sizeof address.storage;
  if (getsockname(fd, address.sockaddr_ptr(), &length) != 0) {
    return system_error(errno, "asking for a socket's address");
  }
  return address;
}

}  // namespace nezha::net
