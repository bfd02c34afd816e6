// SPDX-License-Identifier: Apache-2.0
/// This host's network interfaces, and which of them become rails when a program does not name any.
#pragma once

#include <string>
#include <vector>

#include "nezha/export.h"

namespace nezha {

/// A network interface as the kernel describes it, and what becomes of it if
/// `ContextOptions::rails` is {"auto"}.
struct NetworkInterface {
  /// The kernel's name of it, such as eth0.
  std::string name;
  /// The kernel's word for what kind of software interface it is (veth, bridge, bond, vlan, ...);
  /// empty for a NIC.
  std::string kind;
  /// The addresses, each with the length of the subnet's prefix: 10.0.0.1/16, fd00::1/64.
  std::vector<std::string> addresses;
  /// The MTU, in bytes.
  int mtu = 0;
  /// The speed in Mbit/s, as the driver reports it; 0 if the driver does not.
  int speed = 0;
  /// The address on the PCI bus; empty if it is not on one.
  std::string pci;
  /// The NUMA node; -1 if it is not known.
  int numa_node = -1;
  /// The device that it becomes, for `ContextOptions::rails`; empty if it is left out.
  std::string uri;
  /// Why it is taken or left out.
  std::string reason;
};

/// Returns all interfaces of this process's network namespace. Those that are taken come first, in
/// the order of their rails. A context that takes them logs this, too (NEZHA_LOG=info).
///
/// An interface is taken if it is up, has a carrier and an address, and leads out of the host:
/// NICs, bonds, VLANs, bridges that have a NIC, and the veth of a container. Left out are loopback,
/// other software interfaces (Docker's bridges, tunnels), ports of bridges and bonds, all but one
/// interface on the same wire (a second VLAN), and interfaces with a tenth of the fastest one's
/// speed or less (a management port).
///
/// A rail has the name of its subnet, 10.1.0.0/16, so that it has the same name on every host,
/// whatever the interfaces are called there. If several NICs are on one subnet, the first one, by
/// name, has the subnet's name, and the second is 10.1.0.0/16#2. If each host has subnets of its
/// own and routers join them, interfaces of the same name are on one rail.
///
/// Name the rails yourself if your network differs from this, if networks have the same subnet on
/// every host and are not joined (Docker's default network, on several machines), or to choose
/// among interfaces that have only link-local addresses.
///
/// Thread-safe. Throws IoError if the kernel does not answer.
NEZHA_EXPORT std::vector<NetworkInterface> networkInterfaces();

/// A device that is no network interface and that can be a rail: a port of an RDMA adapter.
struct RailDevice {
  /// The name by which a rail calls it, such as mlx5_0, or mlx5_0:2 for an adapter with several
  /// ports.
  std::string name;
  /// The kind of rail that it can be: rdma.
  std::string kind;
  /// The network interface by which a rail on it makes connections; empty if there is none.
  std::string interface;
  /// The address of the device that a rail on it takes, such as 10.0.0.1; empty if the device
  /// cannot be used.
  std::string address;
  /// The MTU, in bytes; 0 if it is not known.
  int mtu = 0;
  /// The nominal speed, in Mbit/s; 0 if it is not known.
  int speed = 0;
  /// The address on the PCI bus; empty if it is not on one.
  std::string pci;
  /// The NUMA node; -1 if it is not known.
  int numa_node = -1;
  /// The device's URI for `ContextOptions::rails`; empty if the device cannot be used.
  std::string uri;
  /// What a rail on it takes, and why; or, if it cannot be used, why not, and what to do.
  std::string reason;
};

/// Returns all devices of this kind on this machine. "auto" takes none of them, and "rdma:auto"
/// takes those that can be used. The list is also empty if nezha was built without rails of these
/// kinds. Thread-safe. Throws IoError if the kernel cannot be asked.
NEZHA_EXPORT std::vector<RailDevice> railDevices();

}  // namespace nezha
