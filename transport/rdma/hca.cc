// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/hca.h"

#include <dirent.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/descriptor.h"

namespace nezha::rdma {
namespace {

constexpr int kMostGids = 65536;  // the kernel counts GIDs in 16 bits

// ---- Names for people --------------------------------------------------------------------------

absl::string_view type_name(uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_IB:
      return "InfiniBand";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCE v2";
    case Gid::kIwarp:
      return "iWARP";
    default:
      return "a type that is not known here";
  }
}

std::string list_of(const std::vector<Gid>& gids) {
  return absl::StrJoin(gids, ", ", [](std::string* out, const Gid& gid) { *out += gid.str(); });
}

std::string port_name(const Hca& hca, const Port& port) {
  return absl::StrCat("port ", port.number, " of ", hca.name);
}

std::string interface_name(const Machine& machine, int index) {
  const auto found = machine.interfaces.find(index);
  return found == machine.interfaces.end() ? "" : found->second;
}

ibv_gid gid_of(const net::Address& address) {
  ibv_gid gid{};
  if (address.family() == AF_INET) {
    gid.raw[10] = gid.raw[11] = 0xff;  // an IPv4-mapped IPv6 address
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr, 4);
  } else {
    std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr, 16);
  }
  return gid;
}

// ---- What the machine has ----------------------------------------------------------------------

// Returns bytes per second, by the codes of the InfiniBand specification (14.2.5.6, PortInfo). One
// code says what a lane carries, the other how many lanes there are.
double speed_of(const ibv_port_attr& attributes) {
  const std::map<int, double> gigabits = {{1, 2.5}, {2, 5},   {4, 10},  {8, 10},
                                          {16, 14}, {32, 25}, {64, 50}, {128, 100}};
  const std::map<int, int> lanes = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  const auto speed = gigabits.find(attributes.active_speed);
  const auto width = lanes.find(attributes.active_width);
  if (speed == gigabits.end() || width == lanes.end()) return 0;
  return speed->second * width->second * 1e9 / 8;
}

Port port_of(int number, const ibv_port_attr& attributes) {
  Port port;
  port.number = number;
  port.state = attributes.state;
  port.is_infiniband = attributes.link_layer == IBV_LINK_LAYER_INFINIBAND;
  port.lid = attributes.lid;
  port.speed = speed_of(attributes);
  const bool has_mtu =
      attributes.active_mtu >= IBV_MTU_256 && attributes.active_mtu <= IBV_MTU_4096;
  port.mtu = has_mtu ? 128 << attributes.active_mtu : 0;
  return port;
}

absl::Status cannot_open(const std::string& name, int error) {
  const bool is_denied = error == EACCES || error == EPERM;
  return absl::Status(
      is_denied ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable,
      absl::StrCat("the RDMA device ", name, " cannot be opened: ", strerror(error),
                   is_denied ? "; let this process read and write "
                               "/dev/infiniband/uverbs*, in a container, too"
                             : ""));
}

// Reads the GIDs of all ports.
absl::Status read_gids(const Verbs& verbs, ibv_context* context, int count, Hca& hca) {
  std::vector<ibv_gid_entry> entries(static_cast<size_t>(std::max(count, 1)));
  const ssize_t found = verbs.query_gid_table(context, entries.data(), entries.size());
  if (found < 0) {
    return absl::UnavailableError(absl::StrCat(
        "the GIDs of ", hca.name, " cannot be read: ", strerror(static_cast<int>(-found))));
  }
  entries.resize(std::min(entries.size(), static_cast<size_t>(found)));
  for (const ibv_gid_entry& entry : entries) {
    for (Port& port : hca.ports) {
      if (static_cast<uint32_t>(port.number) != entry.port_num) continue;
      port.gids.push_back({entry.gid, static_cast<int>(entry.gid_index), entry.gid_type,
                           static_cast<int>(entry.ndev_ifindex)});
    }
  }
  return absl::OkStatus();
}

absl::Status read_ports(const Verbs& verbs, ibv_context* context, Hca& hca) {
  ibv_device_attr device{};
  if (const int error = verbs.query_device(context, &device); error != 0) {
    return absl::UnavailableError(
        absl::StrCat("the RDMA device ", hca.name, " cannot be asked: ", strerror(error)));
  }
  int gids = 0;
  for (int number = 1; number <= device.phys_port_cnt; ++number) {
    ibv_port_attr attributes{};
    const int error = verbs.query_port(context, static_cast<uint8_t>(number), &attributes);
    if (error != 0) {
      return absl::UnavailableError(
          absl::StrCat("port ", number, " of ", hca.name, " cannot be asked: ", strerror(error)));
    }
    hca.ports.push_back(port_of(number, attributes));
    gids += attributes.gid_tbl_len;
  }
  return hca.is_iwarp ? absl::OkStatus() : read_gids(verbs, context, gids, hca);
}

// The kernel has no table of an iWARP device's addresses: they are those of its network interface,
// whose MAC address is the beginning of the device's GID 0.
void read_mac(const std::string& folder, Hca& hca) {
  for (Port& port : hca.ports) {
    std::string gid =
        read_file(absl::StrCat(folder, "/ports/", port.number, "/gids/0")).value_or("");
    gid.erase(std::remove(gid.begin(), gid.end(), ':'), gid.end());
    if (gid.size() < 12 || gid.find_first_not_of('0') >= 12) continue;  // there is none
    for (size_t i = 0; i < 12; i += 2) {
      absl::StrAppend(&port.mac, i > 0 ? ":" : "", gid.substr(i, 2));
    }
  }
}

void add_addresses(Hca& hca, const Machine& machine, const std::string& sysfs) {
  for (Port& port : hca.ports) {
    for (const net::AssignedAddress& it : machine.addresses) {
      const std::string name = interface_name(machine, it.index);
      const std::string mac = read_file(absl::StrCat(sysfs, "/", name, "/address")).value_or("");
      if (port.mac.empty() || absl::StripAsciiWhitespace(mac) != port.mac) continue;
      Gid& gid = port.gids.emplace_back();
      gid.gid = gid_of(it.address);
      gid.index = static_cast<int>(port.gids.size()) - 1;
      gid.type = Gid::kIwarp;
      gid.interface = it.index;
    }
  }
}

// Reads where in the machine the device of that folder of sysfs is, as far as sysfs tells.
void read_place(const std::string& folder, Hca& hca) {
  std::error_code none;
  const std::string name = std::filesystem::canonical(folder + "/device", none).filename();
  if (absl::StrContains(name, ':')) hca.pci = name;  // 0000:3b:00.1
  const std::string node = read_file(folder + "/device/numa_node").value_or("");
  if (!absl::SimpleAtoi(node, &hca.numa_node)) hca.numa_node = -1;
}

Hca read_hca(const Verbs& verbs, ibv_device* device) {
  Hca hca;
  hca.name = verbs.get_device_name(device);
  hca.is_iwarp = device->transport_type == IBV_TRANSPORT_IWARP;
  read_place(device->ibdev_path, hca);
  ibv_context* context = verbs.open_device(device);
  if (context == nullptr) {
    hca.error = cannot_open(hca.name, errno);
    return hca;
  }
  hca.error = read_ports(verbs, context, hca);
  if (hca.is_iwarp) read_mac(device->ibdev_path, hca);
  verbs.close_device(context);
  return hca;
}

std::optional<std::vector<std::string>> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), &closedir);
  if (open == nullptr) return std::nullopt;
  std::vector<std::string> names;
  while (const dirent* entry = readdir(open.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::map<int, std::string> interface_names() {
  std::map<int, std::string> names;
  struct if_nameindex* all = if_nameindex();
  if (all == nullptr) return names;
  for (const struct if_nameindex* it = all; it->if_index != 0; ++it) {
    names[static_cast<int>(it->if_index)] = it->if_name;
  }
  if_freenameindex(all);
  return names;
}

class DeviceList {
 public:
  explicit DeviceList(const Verbs& verbs) : verbs_(verbs), list_(verbs.get_device_list(&count_)) {}
  ~DeviceList() {
    if (list_ != nullptr) verbs_.free_device_list(list_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  ibv_device** begin() const { return list_; }
  ibv_device** end() const { return list_ == nullptr ? nullptr : list_ + count_; }

 private:
  const Verbs& verbs_;
  int count_ = 0;
  ibv_device** list_;
};

// ---- The choice --------------------------------------------------------------------------------

absl::Status no_devices(const Machine& machine) {
  if (!machine.kernel_devices) {
    return absl::NotFoundError(
        "the kernel has no RDMA (there is no /sys/class/infiniband): load the driver of the "
        "adapter, such as mlx5_ib, or use a tcp rail");
  }
  if (machine.kernel_devices->empty()) {
    return absl::NotFoundError(
        "the machine has no RDMA device (/sys/class/infiniband is empty): load the driver of the "
        "adapter, such as mlx5_ib, or use a tcp rail");
  }
  return absl::NotFoundError(
      absl::StrCat("libibverbs has a driver for none of the kernel's RDMA devices (",
                   absl::StrJoin(*machine.kernel_devices, ", "),
                   "): load the kernel's module ib_uverbs, and install the drivers (Debian: "
                   "ibverbs-providers)"));
}

absl::StatusOr<const Hca*> find_hca(const Wish& wish, const Machine& machine) {
  if (machine.hcas.empty()) return no_devices(machine);
  const auto found = std::find_if(machine.hcas.begin(), machine.hcas.end(),
                                  [&](const Hca& hca) { return hca.name == wish.device; });
  if (found == machine.hcas.end()) {
    const auto name = [](std::string* out, const Hca& hca) { *out += hca.name; };
    return absl::NotFoundError(absl::StrCat(
        "there is no RDMA device '", wish.device,
        "' (there are: ", absl::StrJoin(machine.hcas, ", ", name), "); name one of these"));
  }
  if (!found->error.ok()) return found->error;
  return &*found;
}

absl::Status check_active(const Hca& hca, const Port& port, const Machine& machine) {
  if (port.is_active()) return absl::OkStatus();
  const std::string name = port_name(hca, port);
  if (port.is_infiniband && port.state != IBV_PORT_DOWN) {
    return absl::UnavailableError(absl::StrCat(
        name,
        " waits for the subnet manager of its InfiniBand network; start one, such as opensm"));
  }
  std::string interface;
  for (const Gid& gid : port.gids) {
    if (interface.empty()) interface = interface_name(machine, gid.interface);
  }
  const std::string advice = port.is_infiniband || interface.empty()
                                 ? "check its cable and the device at the cable's other end"
                                 : absl::StrCat("bring its interface up (ip link set ", interface,
                                                " up), or check its cable");
  return absl::UnavailableError(absl::StrCat(name, " is down; ", advice));
}

absl::StatusOr<const Port*> find_port(const Wish& wish, const Hca& hca, const Machine& machine) {
  if (hca.ports.empty()) return absl::NotFoundError(absl::StrCat(hca.name, " has no port"));
  const auto found = std::find_if(hca.ports.begin(), hca.ports.end(), [&](const Port& port) {
    return wish.port == 0 ? port.is_active() : port.number == wish.port;
  });
  if (found == hca.ports.end() && wish.port != 0) {
    const auto number = [](std::string* out, const Port& port) {
      absl::StrAppend(out, port.number);
    };
    return absl::NotFoundError(absl::StrCat(hca.name, " has no port ", wish.port,
                                            " (it has: ", absl::StrJoin(hca.ports, ", ", number),
                                            "); name one of these"));
  }
  const Port& port = found == hca.ports.end() ? hca.ports.front() : *found;
  if (absl::Status status = check_active(hca, port, machine); !status.ok()) return status;
  return &port;
}

// How a GID fits its network interface.
enum class Fit {
  kNone,      // this network namespace has no such address on it
  kAssigned,  // it is an address of the interface
  kBest,      // it is the address that a rail on this interface takes
};

Fit fit_of(const Gid& gid, const Wish& wish, const Machine& machine) {
  std::vector<net::AssignedAddress> addresses;
  std::copy_if(machine.addresses.begin(), machine.addresses.end(), std::back_inserter(addresses),
               [&](const net::AssignedAddress& it) { return it.index == gid.interface; });
  const std::string host = gid.address().host();
  const auto best = net::choose_address("", addresses,
                                        {.named = wish.via.empty() ? wish.address : std::string()});
  if (best.ok() && best->host() == host) return Fit::kBest;
  const bool is_assigned =
      std::any_of(addresses.begin(), addresses.end(),
                  [&](const net::AssignedAddress& it) { return it.address.host() == host; });
  return is_assigned ? Fit::kAssigned : Fit::kNone;
}

// Returns how good a GID is: the larger the better.
auto merit(const Gid& gid, const Wish& wish, const Machine& machine) {
  const net::Address address = gid.address();
  const int kind = address.family() == AF_INET ? 2 : address.is_link_local() ? 0 : 1;
  const bool is_on_via = !wish.via.empty() && interface_name(machine, gid.interface) == wish.via;
  return std::make_tuple(is_on_via, fit_of(gid, wish, machine), kind,
                         gid.type == IBV_GID_TYPE_ROCE_V2, -gid.index);
}

struct ChosenGid {
  Gid gid;
  std::string why;
};

absl::StatusOr<ChosenGid> named_gid(int index, const Hca& hca, const Port& port) {
  for (const Gid& gid : port.gids) {
    if (gid.index == index) return ChosenGid{gid, "the rail names it"};
  }
  return absl::NotFoundError(absl::StrCat(port_name(hca, port), " has no GID ", index,
                                          " (it has: ", list_of(port.gids),
                                          "); name one of these, or leave out gid="));
}

absl::StatusOr<ChosenGid> roce_gid(const Wish& wish, const Hca& hca, const Port& port,
                                   const Machine& machine) {
  const auto best =
      std::max_element(port.gids.begin(), port.gids.end(), [&](const Gid& one, const Gid& other) {
        return merit(one, wish, machine) < merit(other, wish, machine);
      });
  const std::string interface = interface_name(machine, best->interface);
  const Fit fit = fit_of(*best, wish, machine);
  if (wish.via.empty() && !wish.address.empty() && best->address().host() != wish.address) {
    return absl::NotFoundError(absl::StrCat(port_name(hca, port), " has no GID of the address ",
                                            wish.address, " (it has: ", list_of(port.gids),
                                            "); name the address of one of these"));
  }
  if (fit != Fit::kNone) {
    return ChosenGid{*best, absl::StrCat("it is ", interface, "'s address")};
  }
  if (best->address().is_link_local() && !interface.empty()) {
    return ChosenGid{*best, absl::StrCat(interface,
                                         " has no other address, and this one reaches "
                                         "hosts on the same segment alone")};
  }
  if (!wish.via.empty()) {
    return ChosenGid{*best, "it is the first one of the best kind"};
  }
  return absl::NotFoundError(absl::StrCat(
      "no GID of ", port_name(hca, port),
      " is an address of an interface in this "
      "network namespace (it has: ",
      list_of(port.gids), "); name an interface for the handshake with via=INTERFACE"));
}

absl::StatusOr<ChosenGid> choose_gid(const Wish& wish, const Hca& hca, const Port& port,
                                     const Machine& machine) {
  if (port.gids.empty()) {
    return absl::NotFoundError(
        absl::StrCat(port_name(hca, port),
                     " has no GID, by which others could address it; give its network "
                     "interface an address (ip address add)"));
  }
  if (wish.gid && hca.is_iwarp) {
    return absl::InvalidArgumentError(
        absl::StrCat(hca.name, " is an iWARP device, and has no table of GIDs; name an address of ",
                     "its network interface by address=ADDRESS in place of gid="));
  }
  if (wish.gid) return named_gid(*wish.gid, hca, port);
  if (!port.is_infiniband) return roce_gid(wish, hca, port, machine);
  auto first = named_gid(0, hca, port);
  if (first.ok()) first->why = absl::StrCat("the port's LID is ", port.lid);
  return first;
}

}  // namespace

absl::StatusOr<Wish> Wish::parse(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  Wish wish;
  wish.device = std::string(parts.first);
  const bool has_port = parts.first.size() < text.size();
  const bool is_good = !has_port || (absl::SimpleAtoi(parts.second, &wish.port) && wish.port >= 1 &&
                                     wish.port <= 255);
  if (!wish.device.empty() && is_good) return wish;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is not of the form DEVICE or DEVICE:PORT, such as mlx5_0 or mlx5_0:1"));
}

absl::StatusOr<int> Wish::parse_gid(absl::string_view text) {
  int index = 0;
  if (absl::SimpleAtoi(text, &index) && index >= 0 && index < kMostGids) return index;
  return absl::InvalidArgumentError(
      absl::StrCat("gid=", text, " is no index of a GID, such as gid=3"));
}

net::Address Gid::address() const {
  in6_addr whole{};
  std::memcpy(&whole, gid.raw, sizeof whole);
  if (IN6_IS_ADDR_V4MAPPED(&whole)) {
    return *net::Address::from_bytes(AF_INET, gid.raw + 12, sizeof(in_addr));
  }
  net::Address address = *net::Address::from_bytes(AF_INET6, gid.raw, sizeof gid.raw);
  if (address.is_link_local()) address.set_scope(static_cast<unsigned>(interface));
  return address;
}

std::string Gid::str() const {
  return absl::StrCat(index, " (", address().host(), ", ", type_name(type), ")");
}

absl::StatusOr<Machine> Machine::look(const Verbs& verbs, const std::string& only,
                                      const std::string& sysfs) {
  auto netlink = net::Netlink::open();
  if (!netlink.ok()) return netlink.status();
  auto addresses = net::assigned_addresses(*netlink);
  if (!addresses.ok()) return addresses.status();
  Machine machine;
  machine.addresses = *std::move(addresses);
  machine.interfaces = interface_names();
  machine.kernel_devices = names_in(sysfs);
  for (ibv_device* device : DeviceList(verbs)) {
    Hca other;
    other.name = verbs.get_device_name(device);
    const bool is_asked = only.empty() || other.name == only;
    machine.hcas.push_back(is_asked ? read_hca(verbs, device) : std::move(other));
  }
  for (Hca& hca : machine.hcas) {
    if (hca.is_iwarp) add_addresses(hca, machine, "/sys/class/net");
  }
  std::sort(machine.hcas.begin(), machine.hcas.end(),
            [](const Hca& one, const Hca& other) { return one.name < other.name; });
  return machine;
}

absl::StatusOr<Choice> choose(const Wish& wish, const Machine& machine) {
  const auto hca = find_hca(wish, machine);
  if (!hca.ok()) return hca.status();
  const auto port = find_port(wish, **hca, machine);
  if (!port.ok()) return port.status();
  const auto chosen = choose_gid(wish, **hca, **port, machine);
  if (!chosen.ok()) return chosen.status();
  const Gid& gid = chosen->gid;
  Choice choice{(*hca)->name, **port, gid, wish.via, "", (*hca)->is_iwarp};
  if (choice.via.empty()) choice.via = interface_name(machine, gid.interface);
  const std::string name = port_name(**hca, **port);
  if (choice.via.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name,
                     " has no network interface of its own here; name one by which the ranks "
                     "reach each other for the handshake, with via=INTERFACE"));
  }
  choice.why = absl::StrCat("takes ", name, " with GID ", gid.str(), ", as ", chosen->why,
                            "; connections are made by way of ", choice.via);
  return choice;
}

std::string name_of(const Hca& hca, const Port& port) {
  return hca.ports.size() == 1 ? hca.name : absl::StrCat(hca.name, ":", port.number);
}

Cpus near_cpus(const std::string& device, const std::string& sysfs) {
  const std::string list =
      read_file(absl::StrCat(sysfs, "/", device, "/device/local_cpulist")).value_or("");
  return parse_cpus(absl::StripAsciiWhitespace(list)).value_or(Cpus());
}

absl::StatusOr<ibv_context*> open_device(const Verbs& verbs, const std::string& name) {
  for (ibv_device* device : DeviceList(verbs)) {
    if (verbs.get_device_name(device) != name) continue;
    ibv_context* context = verbs.open_device(device);
    if (context == nullptr) return cannot_open(name, errno);
    return context;
  }
  return absl::NotFoundError(absl::StrCat("there is no RDMA device '", name, "' any more"));
}

}  // namespace nezha::rdma
