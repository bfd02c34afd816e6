// SPDX-License-Identifier: Apache-2.0
// Addresses of sockets.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nezha::net {

// An IPv4 or IPv6 address and a port.
struct Address {
  sockaddr_storage storage{};

  static absl::StatusOr<Address> parse(absl::string_view text);       // parses str()
  static absl::StatusOr<Address> parse_host(absl::string_view text);  // parses host(); port 0
  // Takes an address in the kernel's format, in network order, and sets port 0. Returns nothing if
  // the size is not that of the family.
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
  bool is_link_local() const;      // IPv6's only, which are valid on one interface
  void set_scope(unsigned index);  // sets the interface
  bool is_multicast() const;

  // Returns whether family, address and port are the same and, for link-local addresses, the
  // interface.
  friend bool operator==(const Address& a, const Address& b);
};

}  // namespace nezha::net
