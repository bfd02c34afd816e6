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

}  // namespace nezha::net
