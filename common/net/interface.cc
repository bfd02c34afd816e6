// SPDX-License-Identifier: Apache-2.0
#include "common/net/interface.h"

#include <linux/if_addr.h>
#include <net/if.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nezha::net {
namespace {

constexpr uint32_t kForever = 0xffffffff;  // a lifetime

int kind_of(const AssignedAddress& it) {
  if (it.address.family() == AF_INET) return 3;
  return it.address.is_link_local() ? 1 : 2;
}

// The better address has the larger merit.
auto merit(const AssignedAddress& it) {
  const int stays = it.is_deprecated ? 0 : it.is_passing ? 1 : 2;
  return std::make_tuple(kind_of(it), it.is_usable(), stays, -it.scope);
}

std::optional<AssignedAddress> parse_address(NetlinkBytes body) {
  ifaddrmsg info{};
  if (!take(body, info)) return std::nullopt;
  if (info.ifa_family != AF_INET && info.ifa_family != AF_INET6) return std::nullopt;
  AssignedAddress parsed;
  uint32_t flags = info.ifa_flags;
  NetlinkBytes own, other;  // `other` is the peer's on a point-to-point link
  for_each_attribute(body, [&](int type, NetlinkBytes value) {
    ifa_cacheinfo life{};
    if (type == IFA_LOCAL) own = value;
    if (type == IFA_ADDRESS) other = value;
    if (type == IFA_FLAGS && value.size() == sizeof flags) {
      std::memcpy(&flags, value.data(), sizeof flags);
    }
    if (type == IFA_CACHEINFO && take(value, life)) parsed.is_passing = life.ifa_valid != kForever;
  });
  if (own.empty()) own = other;
  const auto address = Address::from_bytes(info.ifa_family, own.data(), own.size());
  if (!address) return std::nullopt;
  parsed.index = static_cast<int>(info.ifa_index);
  parsed.address = *address;
  if (parsed.address.is_link_local()) parsed.address.set_scope(info.ifa_index);
  parsed.prefix = info.ifa_prefixlen;
  parsed.scope = info.ifa_scope;
  parsed.is_duplicate = (flags & IFA_F_DADFAILED) != 0;
  parsed.is_tentative = (flags & IFA_F_TENTATIVE) != 0 && (flags & IFA_F_OPTIMISTIC) == 0;
  parsed.is_deprecated = (flags & IFA_F_DEPRECATED) != 0;
  static_assert(IFA_F_TEMPORARY == IFA_F_SECONDARY);
  parsed.is_passing |= (flags & IFA_F_TEMPORARY) != 0;
  return parsed;
}

bool fits(const AssignedAddress& it, const AddressWish& wish) {
  if (!wish.named.empty()) return it.address.host() == wish.named;
  return wish.family == AF_UNSPEC || wish.family == it.address.family();
}

// Says why no address is taken. `waiting`: a tentative address may be taken once the kernel has
// checked it for duplicates.
absl::Status no_address(const std::string& interface, const std::vector<AssignedAddress>& addresses,
                        const AddressWish& wish, bool waiting) {
  const auto describe = [](std::string* out, const AssignedAddress& it) { *out += it.str(); };
  const std::string list = addresses.empty()
                               ? "it has none"
                               : absl::StrCat("it has ", absl::StrJoin(addresses, ", ", describe));
  const absl::string_view family = wish.family == AF_INET6  ? "IPv6 "
                                   : wish.family == AF_INET ? "IPv4 "
                                                            : "";
  const std::string text = wish.named.empty()
                               ? absl::StrCat("the interface '", interface, "' has no ", family,
                                              "address that can be used (", list, ")")
                               : absl::StrCat(wish.named, " is no address of the interface '",
                                              interface, "' that can be used (", list, ")");
  return waiting ? absl::UnavailableError(text) : absl::NotFoundError(text);
}

}  // namespace

std::string AssignedAddress::str() const {
  const absl::string_view why = is_duplicate    ? " (duplicate: another host has it)"
                                : is_tentative  ? " (tentative: not checked for duplicates yet)"
                                : is_deprecated ? " (deprecated)"
                                                : "";
  return absl::StrCat(address.host(), "/", prefix, why);
}

bool is_better(const AssignedAddress& one, const AssignedAddress& other) {
  return merit(one) > merit(other);
}

absl::StatusOr<std::vector<AssignedAddress>> assigned_addresses(Netlink& netlink) {
  std::vector<AssignedAddress> all;
  const absl::Status status = netlink.addresses([&](int type, NetlinkBytes body) {
    if (type != RTM_NEWADDR) return;
    if (const auto parsed = parse_address(body)) all.push_back(*parsed);
  });
  if (!status.ok()) return status;
  return all;
}

// Reads the addresses first: if the interface is created again in between, none of them has its new
// index.
absl::StatusOr<InterfaceState> look_at(const std::string& interface, Netlink& netlink) {
  const auto addresses = assigned_addresses(netlink);
  if (!addresses.ok()) return addresses.status();
  InterfaceState state;
  const absl::Status status = netlink.link(interface, [&](int type, NetlinkBytes body) {
    ifinfomsg info{};
    if (type != RTM_NEWLINK || !take(body, info)) return;
    state.index = info.ifi_index;
    state.is_running = (info.ifi_flags & IFF_UP) != 0 && (info.ifi_flags & IFF_RUNNING) != 0;
  });
  if (absl::IsNotFound(status)) return InterfaceState();
  if (!status.ok()) return status;
  std::copy_if(addresses->begin(), addresses->end(), std::back_inserter(state.addresses),
               [&](const AssignedAddress& it) { return it.index == state.index; });
  return state;
}

absl::StatusOr<Address> choose_address(const std::string& interface,
                                       const std::vector<AssignedAddress>& addresses,
                                       const AddressWish& wish) {
  const AssignedAddress* best = nullptr;
  const AssignedAddress* next = nullptr;  // the best tentative one, which may be usable soon
  for (const AssignedAddress& it : addresses) {
    if (!fits(it, wish) || it.is_duplicate) continue;
    const AssignedAddress*& first = it.is_tentative ? next : best;
    if (first == nullptr || is_better(it, *first)) first = &it;
  }
  const bool waiting = next != nullptr && (best == nullptr || kind_of(*next) > kind_of(*best));
  if (best == nullptr || waiting) return no_address(interface, addresses, wish, waiting);
  return best->address;
}

absl::StatusOr<Address> interface_address(const std::string& interface, const AddressWish& wish) {
  auto netlink = Netlink::open();
  if (!netlink.ok()) return netlink.status();
  const auto state = look_at(interface, *netlink);
  if (!state.ok()) return state.status();
  if (state->index == 0) return no_such_interface(interface);
  return choose_address(interface, state->addresses, wish);
}

absl::Status no_such_interface(const std::string& interface) {
  std::vector<std::string> names;
  auto netlink = Netlink::open();
  if (!netlink.ok()) return netlink.status();
  absl::Status status = netlink->links([&](int type, NetlinkBytes body) {
    ifinfomsg info{};
    if (type != RTM_NEWLINK || !take(body, info)) return;
    for_each_attribute(body, [&](int kind, NetlinkBytes value) {
      if (kind == IFLA_IFNAME)
        names.emplace_back(value.data(), strnlen(value.data(), value.size()));
    });
  });
  if (!status.ok()) return status;
  std::sort(names.begin(), names.end());
  return absl::NotFoundError(absl::StrCat("there is no interface '", interface,
                                          "' (there are: ", absl::StrJoin(names, ", "), ")"));
}

}  // namespace nezha::net
