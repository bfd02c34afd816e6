// SPDX-License-Identifier: Apache-2.0
// The RDMA devices (host channel adapters, HCAs) of the machine and their ports, and the choice of
// a port and of its address (GID) for a rail.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/cpus.h"
#include "common/net/interface.h"
#include "transport/rdma/verbs.h"

namespace nezha::rdma {

// What a rail's URI asks for.
struct Wish {
  std::string device = {};      // such as mlx5_0
  int port = 0;                 // 0: the first one that is active
  std::optional<int> gid = {};  // index in the port's table; none: the one that fits the interface
  std::string via = {};         // the interface that carries the handshake; empty: that of the GID
  // The address of that interface, as net::Address::host() writes it; empty: the best one.
  std::string address = {};

  // Parses DEVICE or DEVICE:PORT.
  static absl::StatusOr<Wish> parse(absl::string_view text);
  // Parses the value of the option gid.
  static absl::StatusOr<int> parse_gid(absl::string_view text);
};

// An entry of a port's table of addresses, or an address of an iWARP device's network interface.
struct Gid {
  static constexpr uint32_t kIwarp = UINT32_MAX;  // the type of an iWARP device's addresses

  ibv_gid gid{};
  int index = 0;
  uint32_t type = IBV_GID_TYPE_IB;  // ibv_gid_type
  int interface = 0;  // the kernel's number of the network interface; 0: there is none

  net::Address address() const;
  std::string str() const;  // 1 (10.0.0.1, RoCE v2)
};

struct Port {
  int number = 0;
  ibv_port_state state = IBV_PORT_NOP;
  bool is_infiniband = false;  // else its packets go over Ethernet
  uint16_t lid = 0;            // its address within an InfiniBand subnet
  double speed = 0;            // bytes per second, nominal; 0: not known
  int mtu = 0;                 // bytes
  std::vector<Gid> gids;
  std::string mac = {};  // an iWARP port's, as the kernel writes it for an interface

  bool is_active() const { return state == IBV_PORT_ACTIVE; }
};

struct Hca {
  std::string name;
  bool is_iwarp = false;
  std::string pci;     // its address on the PCI bus; empty: it is on none
  int numa_node = -1;  // -1: not known
  absl::Status error;  // why nothing more is known of it
  std::vector<Port> ports;
};

// What the machine has.
struct Machine {
  std::vector<Hca> hcas;
  // The names of the kernel's RDMA devices, for which libibverbs may lack drivers; nullopt: the
  // kernel has no RDMA.
  std::optional<std::vector<std::string>> kernel_devices;
  std::map<int, std::string> interfaces;  // the names by the kernel's numbers
  std::vector<net::AssignedAddress> addresses;

  // Asks libibverbs and the kernel. If `only` names a device, the others get only their names; if
  // it is empty, all are asked. Blocks for some milliseconds.
  static absl::StatusOr<Machine> look(const Verbs& verbs, const std::string& only = "",
                                      const std::string& sysfs = "/sys/class/infiniband");
};

struct Choice {
  std::string device;
  Port port;
  Gid gid;
  std::string via;  // the interface that carries the handshake
  std::string why;  // a sentence for the log: what is taken, and why
  bool is_iwarp = false;
};

// An error says what to do.
absl::StatusOr<Choice> choose(const Wish& wish, const Machine& machine);

// Returns the port's name, as Wish::parse reads it. The port of a device that has only one is named
// as the device.
std::string name_of(const Hca& hca, const Port& port);

// Returns the cores near the device of that name, as far as the kernel knows.
Cpus near_cpus(const std::string& device, const std::string& sysfs = "/sys/class/infiniband");

// Opens the device of that name, which the caller closes.
absl::StatusOr<ibv_context*> open_device(const Verbs& verbs, const std::string& name);

}  // namespace nezha::rdma
