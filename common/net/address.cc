// SPDX-License-Identifier: Apache-2.0
#include "common/net/address.h"

#include <arpa/inet.h>

#include <array>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace nezha::net {
namespace {

sockaddr_in* as_v4(sockaddr_storage& storage) { return reinterpret_cast<sockaddr_in*>(&storage); }
sockaddr_in6* as_v6(sockaddr_storage& storage) { return reinterpret_cast<sockaddr_in6*>(&storage); }
const sockaddr_in* as_v4(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in*>(&storage);
}
const sockaddr_in6* as_v6(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in6*>(&storage);
}

}  // namespace

absl::StatusOr<Address> Address::parse(absl::string_view text) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not an address and port"));
  };
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == text.npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port == 0 ||
      port > 65535) {
    return bad();
  }
  std::string host(text.substr(0, colon));
  Address address;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    address.storage.ss_family = AF_INET6;
    host = host.substr(1, host.size() - 2);
    if (inet_pton(AF_INET6, host.c_str(), &as_v6(address.storage)->sin6_addr) != 1) return bad();
  } else {
    address.storage.ss_family = AF_INET;
    if (inet_pton(AF_INET, host.c_str(), &as_v4(address.storage)->sin_addr) != 1) return bad();
  }
  address.set_port(static_cast<uint16_t>(port));
  return address;
}

absl::StatusOr<Address> Address::parse_host(absl::string_view text) {
  const std::string host(text);
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return *from_bytes(AF_INET, &v4, sizeof v4);
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return *from_bytes(AF_INET6, &v6, sizeof v6);
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not an address"));
}

std::optional<Address> Address::from_bytes(int family, const void* bytes, size_t size) {
  Address address;
  address.storage.ss_family = static_cast<sa_family_t>(family);
  void* const to = family == AF_INET6 ? static_cast<void*>(&as_v6(address.storage)->sin6_addr)
                                      : &as_v4(address.storage)->sin_addr;
  if (size != (family == AF_INET6 ? sizeof(in6_addr) : sizeof(in_addr))) return std::nullopt;
  std::memcpy(to, bytes, size);
  return address;
}

std::string Address::str() const {
  return family() == AF_INET6 ? absl::StrCat("[", host(), "]:", port())
                              : absl::StrCat(host(), ":", port());
}

std::string Address::host() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* const from = family() == AF_INET6
                               ? static_cast<const void*>(&as_v6(storage)->sin6_addr)
                               : &as_v4(storage)->sin_addr;
  inet_ntop(family() == AF_INET6 ? AF_INET6 : AF_INET, from, text.data(), text.size());
  return text.data();
}

uint16_t Address::port() const {
  return ntohs(family() == AF_INET6 ? as_v6(storage)->sin6_port : as_v4(storage)->sin_port);
}

void Address::set_port(uint16_t port) {
  if (family() == AF_INET6) {
    as_v6(storage)->sin6_port = htons(port);
  } else {
    as_v4(storage)->sin_port = htons(port);
  }
}

bool Address::is_link_local() const {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&as_v6(storage)->sin6_addr);
}

void Address::set_scope(unsigned index) { as_v6(storage)->sin6_scope_id = index; }

bool Address::is_multicast() const {
  if (family() == AF_INET6) return IN6_IS_ADDR_MULTICAST(&as_v6(storage)->sin6_addr);
  return family() == AF_INET && IN_MULTICAST(ntohl(as_v4(storage)->sin_addr.s_addr));
}

bool operator==(const Address& a, const Address& b) {
  if (a.family() != b.family() || a.port() != b.port()) return false;
  if (a.family() != AF_INET6)
    return as_v4(a.storage)->sin_addr.s_addr == as_v4(b.storage)->sin_addr.s_addr;
  const sockaddr_in6& first = *as_v6(a.storage);
  const sockaddr_in6& second = *as_v6(b.storage);
  return IN6_ARE_ADDR_EQUAL(&first.sin6_addr, &second.sin6_addr) &&
         (!a.is_link_local() || first.sin6_scope_id == second.sin6_scope_id);
}

}  // namespace nezha::net
