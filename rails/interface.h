// SPDX-License-Identifier: Apache-2.0
// The description of a host's network interfaces from which the NIC selector decides.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace nezha {

// An interface's address and the length of its subnet's prefix.
struct InterfaceAddress {
  bool is_ipv6 = false;
  std::array<uint8_t, 16> bytes{};  // network order; IPv4 uses the first four
  int prefix = 0;                   // bits

  int bits() const { return is_ipv6 ? 128 : 32; }
  bool is_link_local() const;
  InterfaceAddress subnet() const;  // the address without the host's bits
  std::string str() const;          // 10.0.0.1/16, fd00::1/64

  auto operator<=>(const InterfaceAddress&) const = default;
};

struct Interface {
  std::string name;
  int index = 0;
  // The kernel's name for a kind of device made by software (veth, bridge, bond, vlan, ...); empty
  // for a NIC.
  std::string kind;
  bool is_loopback = false;
  bool is_up = false;  // the administrator has brought it up
  bool has_carrier = false;
  int master = 0;         // the index of the bridge, bond, ... that this is a port of; 0: no port
  std::string port_kind;  // the master's kind
  int lower = 0;          // the index of the device below a VLAN, ... in this namespace; 0: none
  // The addresses, without those that another host has. A device takes the first one of the kind
  // that it wants.
  std::vector<InterfaceAddress> addresses;
  int mtu = 0;         // bytes
  int speed = 0;       // Mbit/s, from the driver; 0: unknown
  std::string pci;     // 0000:3b:00.1; empty: not on a PCI bus
  int numa_node = -1;  // -1: unknown
};

}  // namespace nezha
