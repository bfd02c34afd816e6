#include "transport/tcp/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/descriptor.h"
#include "common/fork.h"

namespace nezha::tcp {
namespace {

// How long data may stay unacknowledged by the peer's kernel, milliseconds. The channel notices
// sooner while the pair has another link; this is for the last one.
constexpr int kUserTimeout = 10'000;

sockaddr_in* as_v4(sockaddr_storage& storage) { return reinterpret_cast<sockaddr_in*>(&storage); }
sockaddr_in6* as_v6(sockaddr_storage& storage) { return reinterpret_cast<sockaddr_in6*>(&storage); }
const sockaddr_in* as_v4(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in*>(&storage);
}
const sockaddr_in6* as_v6(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in6*>(&storage);
}

void set_option(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

Socket::Socket(int fd) : fd_(above_standard(fd)) {
  if (fd_ >= 0) close_in_children(fd_);
}

Socket::~Socket() {
  if (fd_ >= 0) close_ours(fd_);
}

absl::StatusOr<Address> Address::parse(absl::string_view text) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(absl::StrCat("not an address and port: '", text, "'"));
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

std::string Address::str() const {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (family() == AF_INET6) {
    inet_ntop(AF_INET6, &as_v6(storage)->sin6_addr, host.data(), host.size());
    return absl::StrCat("[", host.data(), "]:", port());
  }
  inet_ntop(AF_INET, &as_v4(storage)->sin_addr, host.data(), host.size());
  return absl::StrCat(host.data(), ":", port());
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

absl::StatusOr<Address> interface_address(const std::string& interface, int family) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return absl::ErrnoToStatus(errno, "listing the interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::set<std::string> names;
  Address best;
  int best_score = 0;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    names.insert(entry->ifa_name);
    if (interface != entry->ifa_name || entry->ifa_addr == nullptr) continue;
    const int found = entry->ifa_addr->sa_family;
    if ((found != AF_INET && found != AF_INET6) || (family != AF_UNSPEC && family != found)) {
      continue;
    }
    Address address;
    std::memcpy(&address.storage, entry->ifa_addr,
                found == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    const int score = found == AF_INET ? 3 : address.is_link_local() ? 1 : 2;
    if (score <= best_score) continue;
    best = address;
    best_score = score;
  }
  if (best_score > 0) return best;
  if (!names.contains(interface)) {
    return absl::NotFoundError(absl::StrCat("there is no interface '", interface,
                                            "' (there are: ", absl::StrJoin(names, ", "), ")"));
  }
  return absl::NotFoundError(absl::StrCat("the interface '", interface, "' has no ",
                                          family == AF_INET6  ? "IPv6 "
                                          : family == AF_INET ? "IPv4 "
                                                              : "",
                                          "address"));
}

bool interface_running(const std::string& interface) {
  const Socket any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  if (any.fd() < 0 || ioctl(any.fd(), SIOCGIFFLAGS, &request) != 0) return false;
  return (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0;
}

absl::Status bind_to_interface(int fd, const std::string& interface) {
  if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, interface.data(),
                 static_cast<socklen_t>(interface.size())) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("binding a socket to ", interface));
  }
  return absl::OkStatus();
}

absl::StatusOr<Socket> bound_socket(const std::string& interface, const Address& address) {
  Socket made(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made.fd() < 0) return absl::ErrnoToStatus(errno, "making a socket");
  if (absl::Status status = bind_to_interface(made.fd(), interface); !status.ok()) return status;
  if (bind(made.fd(), address.sockaddr_ptr(), address.length()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("binding a socket to ", address.str()));
  }
  return made;
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
    return absl::ErrnoToStatus(errno, "asking for a socket's address");
  }
  return address;
}

}  // namespace nezha::tcp
