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
/// their rails. A rail is called after its subnet, so that it has the same name on every host; of
/// several NICs on one subnet the first, by name, has the subnet's name, and the second #2 behind
/// it. Loopback, what has no address or no carrier, what software made (Docker's bridges; but not
/// the veth that is all a container has), ports of bridges and bonds, all but one on the same wire,
/// and what has a tenth of the fastest one's speed or less are left.
///
/// Thread-safe. Throws IoError if the kernel does not answer.
NEZHA_EXPORT std::vector<NetworkInterface> network_interfaces();

}  // namespace nezha
