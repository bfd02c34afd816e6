// SPDX-License-Identifier: Apache-2.0
// What is known of a host's network interfaces: the description that the NIC selector decides over.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace nezha {

// An interface's address and how much of it is the subnet's.
struct InterfaceAddress {
  bool is_ipv6 = false;
  std::array<uint8_t, 16> bytes{};  // network order; of IPv4 the first four
  int prefix = 0;                   // bits

  int bits() const { return is_ipv6 ? 128 : 32; }
  bool is_link_local() const;
  InterfaceAddress subnet() const;  // without the host's bits
  std::string str() const;          // 10.0.0.1/16, fd00::1/64

  auto operator<=>(const InterfaceAddress&) const = default;
};

struct Interface {
  std::string name;
  int index = 0;
  // The kernel's word for a device made by software (veth, bridge, bond, vlan, ...); empty: a NIC.
  std::string kind;
  bool is_loopback = false;
  bool is_up = false;  // as the administrator wants it
  bool has_carrier = false;
  int master = 0;         // the index of the bridge, bond, ... that this is a port of; 0: of none
  std::string port_kind;  // what the master is
  int lower = 0;          // the index of what a VLAN, ... stands on in this namespace; 0: nothing
  // Without those that another host has; a device takes the first of the kind that it wants.
  std::vector<InterfaceAddress> addresses;
  int mtu = 0;         // bytes
  int speed = 0;       // Mbit/s, as the driver says; 0: it does not
  std::string pci;     // 0000:3b:00.1; empty: not on that bus
  int numa_node = -1;  // -1: unknown
};

}  // namespace nezha
