// SPDX-License-Identifier: Apache-2.0
/// This host's network interfaces, and which of them become rails when a program does not name any.
#pragma once

#include <string>
#include <vector>

#include "nezha/export.h"

namespace nezha {

/// A network interface, as the kernel describes it, and what becomes of it where
/// `ContextOptions::rails` is {"auto"}.
struct NetworkInterface {
  /// The kernel's, such as eth0.
  std::string name;
  /// What made it, in the kernel's word (veth, bridge, bond, vlan, ...); empty of a NIC.
  std::string kind;
  /// With the length of the subnet's prefix: 10.0.0.1/16, fd00::1/64.
  std::vector<std::string> addresses;
  /// Bytes.
  int mtu = 0;
  /// Mbit/s, as its driver says; 0 if that does not say.
  int speed = 0;
  /// The address on the PCI bus; empty if it is not on one.
  std::string pci;
  /// -1 if that is not known.
  int numa_node = -1;
  /// The device that it becomes, for `ContextOptions::rails`; empty if it is left.
  std::string uri;
  /// Why it is taken or left.
  std::string reason;
};

/// All interfaces of this process's network namespace: first those that are taken, in the order of
/// their rails. A context that takes them logs as much (NEZHA_LOG=info).
///
/// Taken is what is up, has a carrier and an address, and leads out of the host: NICs, bonds,
/// VLANs, bridges that have a NIC, and in a container its veth. Left are loopback, what else
/// software made (Docker's bridges, tunnels), ports of bridges and bonds, all but one on the same
/// wire (a second VLAN), and what has a tenth of the fastest one's speed or less (a management
/// port).
///
/// A rail is called after its subnet, 10.1.0.0/16, so that it has the same name on every host,
/// whatever the interfaces are called there; of several NICs on one subnet the first, by name, has
/// the subnet's name, and the second is 10.1.0.0/16#2. Where each host has subnets of its own and
/// routers join them, interfaces of the same name are on one rail.
///
/// Name the rails where that is not so, where networks have the same subnet on every host and are
/// not joined (Docker's default network, on several machines), or to choose among interfaces that
/// have only link-local addresses.
///
/// Thread-safe. Throws IoError if the kernel does not answer.
NEZHA_EXPORT std::vector<NetworkInterface> networkInterfaces();

/// A device that is no network interface and that can be a rail: a port of an RDMA adapter.
struct RailDevice {
  /// As a rail names it, such as mlx5_0, or mlx5_0:2 of an adapter with several ports.
  std::string name;
  /// The kind of rail that it can be: rdma.
  std::string kind;
  /// The network interface by which a rail on it makes connections; empty if there is none.
  std::string interface;
  /// Its own address, such as 10.0.0.1, that a rail on it takes; empty if it cannot be used.
  std::string address;
  /// Bytes; 0 if that is not known.
  int mtu = 0;
  /// Mbit/s, nominal; 0 if that is not known.
  int speed = 0;
  /// The address on the PCI bus; empty if it is not on one.
  std::string pci;
  /// -1 if that is not known.
  int numa_node = -1;
  /// For `ContextOptions::rails`; empty if it cannot be used.
  std::string uri;
  /// What a rail on it takes, and why, or why it cannot be used and what to do.
  std::string reason;
};

/// All such devices of this machine. "auto" takes none of them, and "rdma:auto" takes those that
/// can be used. Empty also where nezha was built without rails of these kinds. Throws IoError if
/// the kernel cannot be asked. Thread-safe.
NEZHA_EXPORT std::vector<RailDevice> railDevices();

}  // namespace nezha
