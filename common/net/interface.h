// SPDX-License-Identifier: Apache-2.0
// Reads network interfaces and their addresses from the kernel, and chooses an address.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net/netlink.h"
#include "common/net/socket.h"

namespace nezha::net {

// An address of an interface.
struct AssignedAddress {
  int index = 0;  // the interface's
  Address address;
  int prefix = 0;  // bits
  // Another host has the address (duplicate address detection, RFC 4862), so no socket can have it.
  bool is_duplicate = false;
  // The kernel still checks whether another host has the address. Until then no socket can be bound
  // to it.
  bool is_tentative = false;
  bool is_deprecated = false;  // new connections should use another address
  bool is_passing = false;     // it has a lifetime, or is secondary in its subnet
  int scope = 0;               // smaller if wider: RT_SCOPE_UNIVERSE is 0

  bool is_usable() const { return !is_duplicate && !is_tentative; }
  std::string str() const;  // fd00::1/64 (deprecated)
};

// Returns whether the first address is the better one to take. IPv4 comes before IPv6, and IPv6
// before link-local IPv6. Within a kind, usable addresses come first, then permanent ones, then
// those that expire, and deprecated ones last.
bool is_better(const AssignedAddress& one, const AssignedAddress& other);

// The conditions that a rail sets for its address.
struct AddressWish {
  int family = AF_UNSPEC;
  std::string named = {};  // as Address::host() gives it; empty: the best one
};

struct InterfaceState {
  // The kernel's number of the interface; 0 if there is none of that name. An interface that is
  // created again gets another number.
  int index = 0;
  bool is_running = false;  // it is up and has a carrier
  std::vector<AssignedAddress> addresses;
};

// An error means that the kernel could not be asked; it tells nothing about the interface.
absl::StatusOr<InterfaceState> look_at(const std::string& interface, Netlink& netlink);
// Returns the addresses of all interfaces of the network namespace.
absl::StatusOr<std::vector<AssignedAddress>> assigned_addresses(Netlink& netlink);

// Returns the address to take, with port 0. Returns kUnavailable if an address of a better kind
// than those that can be used now may be usable soon, and kNotFound if there is none. The error
// lists the addresses that there are.
absl::StatusOr<Address> choose_address(const std::string& interface,
                                       const std::vector<AssignedAddress>& addresses,
                                       const AddressWish& wish);

// Does the same for the interface as it is now. If there is no interface of that name, the error
// names those that there are.
absl::StatusOr<Address> interface_address(const std::string& interface, const AddressWish& wish);

// Returns kNotFound, which names the interfaces that there are.
absl::Status no_such_interface(const std::string& interface);

}  // namespace nezha::net
