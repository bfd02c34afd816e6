// SPDX-License-Identifier: Apache-2.0
#include "rails/nic_probe.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/descriptor.h"
#include "common/net/interface.h"
#include "common/net/netlink.h"

namespace nezha {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLevels = 4;  // a VLAN of a bridge of a bond of NICs

// ---- rtnetlink ---------------------------------------------------------------------------------

using Bytes = net::NetlinkBytes;

std::string text_of(Bytes value) {
  return {value.begin(), std::find(value.begin(), value.end(), '\0')};
}

int number_of(Bytes value) {
  int number = 0;
  std::memcpy(&number, value.data(), std::min(value.size(), sizeof number));
  return number;
}

Interface parse_link(const ifinfomsg& info, Bytes attributes) {
  Interface link;
  link.index = info.ifi_index;
  link.is_loopback = (info.ifi_flags & IFF_LOOPBACK) != 0;
  link.is_up = (info.ifi_flags & IFF_UP) != 0;
  link.has_carrier = (info.ifi_flags & IFF_RUNNING) != 0;
  bool is_elsewhere = false;  // the device below it, or the other end of the pair
  net::for_each_attribute(attributes, [&](int type, Bytes value) {
    if (type == IFLA_IFNAME) link.name = text_of(value);
    if (type == IFLA_MTU) link.mtu = number_of(value);
    if (type == IFLA_MASTER) link.master = number_of(value);
    if (type == IFLA_LINK) link.lower = number_of(value);
    if (type == IFLA_LINK_NETNSID) is_elsewhere = true;
    if (type != IFLA_LINKINFO) return;
    net::for_each_attribute(value, [&](int detail, Bytes words) {
      if (detail == IFLA_INFO_KIND) link.kind = text_of(words);
      if (detail == IFLA_INFO_SLAVE_KIND) link.port_kind = text_of(words);
    });
  });
  // Each end of a pair names the other end, which is not a device below it.
  const bool is_pair = link.kind == "veth" || link.kind == "netkit";
  if (is_elsewhere || is_pair || link.lower == link.index) link.lower = 0;
  return link;
}

absl::StatusOr<std::vector<Interface>> probe_links(net::Netlink& netlink) {
  std::vector<Interface> links;
  const absl::Status status = netlink.links([&](int type, Bytes body) {
    ifinfomsg info{};
    if (type == RTM_NEWLINK && net::take(body, info)) links.push_back(parse_link(info, body));
  });
  if (!status.ok()) return status;
  return links;
}

// ---- Addresses ---------------------------------------------------------------------------------

InterfaceAddress describe(const net::AssignedAddress& address) {
  InterfaceAddress described;
  const sockaddr_storage& storage = address.address.storage;
  described.is_ipv6 = storage.ss_family == AF_INET6;
  const size_t offset =
      described.is_ipv6 ? offsetof(sockaddr_in6, sin6_addr) : offsetof(sockaddr_in, sin_addr);
  const size_t length = described.is_ipv6 ? sizeof(in6_addr) : sizeof(in_addr);
  std::memcpy(described.bytes.data(), reinterpret_cast<const char*>(&storage) + offset, length);
  described.prefix = address.prefix;
  return described;
}

// Sorts each link's addresses, so that the one that a device would take is the first.
absl::Status probe_addresses(net::Netlink& netlink, std::vector<Interface>& links) {
  auto addresses = net::assigned_addresses(netlink);
  if (!addresses.ok()) return addresses.status();
  std::stable_sort(addresses->begin(), addresses->end(), net::is_better);
  for (const net::AssignedAddress& address : *addresses) {
    if (address.is_duplicate) continue;
    for (Interface& link : links) {
      if (link.index == address.index) link.addresses.push_back(describe(address));
    }
  }
  return absl::OkStatus();
}

// ---- sysfs -------------------------------------------------------------------------------------

int read_number(const fs::path& file, int otherwise) {
  int number = 0;
  return absl::SimpleAtoi(read_file(file).value_or(""), &number) ? number : otherwise;
}

// Returns whether the name is a PCI address, such as 0000:3b:00.1.
bool is_pci_address(absl::string_view name) {
  return name.size() >= 12 && name[name.size() - 2] == '.' && name[name.size() - 5] == ':' &&
         name[name.size() - 8] == ':';
}

// If sysfs was not mounted in this namespace, it may show another namespace's devices. So what it
// says decides only about preferences.
void probe_hardware(Interface& link) {
  const fs::path folder = fs::path("/sys/class/net") / link.name;
  link.speed = std::max(0, read_number(folder / "speed", 0));  // -1: unknown
  std::error_code error;
  fs::path device = fs::canonical(folder / "device", error);
  // There may be another device between a NIC and its PCI device (virtio).
  for (; !error && device.has_relative_path(); device = device.parent_path()) {
    if (!is_pci_address(device.filename().string())) continue;
    link.pci = device.filename().string();
    link.numa_node = read_number(device / "numa_node", -1);
    return;
  }
}

// Returns the first NIC below a bond, a VLAN or a bridge, through up to kMostLevels levels, or else
// the interface itself.
std::string hardware_of(std::string interface) {
  for (int depth = 0; depth < kMostLevels; ++depth) {
    const fs::path folder = fs::path("/sys/class/net") / interface;
    std::error_code error;
    if (fs::exists(folder / "device", error)) break;
    std::set<std::string> lower;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (absl::StartsWith(name, "lower_")) lower.insert(name.substr(6));
    }
    if (lower.empty()) break;
    interface = *lower.begin();
  }
  return interface;
}

}  // namespace

absl::StatusOr<std::vector<Interface>> probe_interfaces() {
  auto netlink = net::Netlink::open();
  if (!netlink.ok()) return netlink.status();
  auto links = probe_links(*netlink);
  if (!links.ok()) return links;
  if (absl::Status status = probe_addresses(*netlink, *links); !status.ok()) return status;
  for (Interface& link : *links) {
    if (!link.is_loopback) probe_hardware(link);
  }
  return links;
}

std::set<int> near_numa_nodes() {
  std::set<int> nodes;
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return nodes;
  std::error_code error;
  for (fs::directory_iterator entry("/sys/devices/system/node", error), end; !error && entry != end;
       entry.increment(error)) {
    int node = 0;
    const fs::path& folder = entry->path();
    const std::string name = folder.filename().string();
    if (name.compare(0, 4, "node") != 0 || !absl::SimpleAtoi(name.substr(4), &node)) continue;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      std::error_code ignored;
      if (!CPU_ISSET(cpu, &cpus)) continue;
      if (!fs::exists(folder / absl::StrCat("cpu", cpu), ignored)) continue;
      nodes.insert(node);
      break;
    }
  }
  return nodes;
}

int wire_speed_of(const std::string& interface) {
  std::error_code error;
  const fs::path hardware = fs::path("/sys/class/net") / hardware_of(interface) / "device";
  if (!fs::exists(hardware, error)) return 0;
  Interface link;
  link.name = interface;
  probe_hardware(link);
  return link.speed;
}

Cpus near_cpus(const std::string& interface) {
  Interface link;
  link.name = hardware_of(interface);
  probe_hardware(link);
  const std::string list =
      read_file(absl::StrCat("/sys/devices/system/node/node", link.numa_node, "/cpulist"))
          .value_or("");
  return parse_cpus(absl::StripAsciiWhitespace(list)).value_or(Cpus());
}

}  // namespace nezha
