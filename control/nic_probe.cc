#include "control/nic_probe.h"

#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
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
#include "transport/tcp/socket.h"

namespace nezha {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLevels = 4;  // a VLAN of a bridge of a bond of NICs

// ---- rtnetlink ---------------------------------------------------------------------------------

using Bytes = absl::Span<const char>;

// A part of the kernel's answer that begins with a T; `rest` is what follows that.
template <typename T>
bool take(Bytes& rest, T& head) {
  if (rest.size() < sizeof head) return false;
  std::memcpy(&head, rest.data(), sizeof head);
  rest.remove_prefix(std::min(rest.size(), size_t{NLMSG_ALIGN(sizeof head)}));
  return true;
}

// Calls `visit(type, value)` for each attribute; all of them are aligned to four bytes.
template <typename Visit>
void for_each_attribute(Bytes rest, Visit visit) {
  rtattr head{};
  while (rest.size() >= sizeof head) {
    std::memcpy(&head, rest.data(), sizeof head);
    if (head.rta_len < sizeof head || head.rta_len > rest.size()) return;
    visit(head.rta_type & NLA_TYPE_MASK, rest.subspan(sizeof head, head.rta_len - sizeof head));
    rest.remove_prefix(std::min(rest.size(), size_t{RTA_ALIGN(head.rta_len)}));
  }
}

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
  bool is_elsewhere = false;  // what it stands on, or the other end
  for_each_attribute(attributes, [&](int type, Bytes value) {
    if (type == IFLA_IFNAME) link.name = text_of(value);
    if (type == IFLA_MTU) link.mtu = number_of(value);
    if (type == IFLA_MASTER) link.master = number_of(value);
    if (type == IFLA_LINK) link.lower = number_of(value);
    if (type == IFLA_LINK_NETNSID) is_elsewhere = true;
    if (type != IFLA_LINKINFO) return;
    for_each_attribute(value, [&](int detail, Bytes words) {
      if (detail == IFLA_INFO_KIND) link.kind = text_of(words);
      if (detail == IFLA_INFO_SLAVE_KIND) link.port_kind = text_of(words);
    });
  });
  // Of a pair each end names the other, on which it does not stand.
  const bool is_pair = link.kind == "veth" || link.kind == "netkit";
  if (is_elsewhere || is_pair || link.lower == link.index) link.lower = 0;
  return link;
}

absl::Status error_of(int error) {
  return absl::ErrnoToStatus(error, "asking the kernel for the network interfaces");
}

absl::Status ask_for_links(int fd) {
  struct {
    nlmsghdr header;
    ifinfomsg info;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  const timeval patience{5, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return send(fd, &request, sizeof request, 0) == sizeof request ? absl::OkStatus()
                                                                 : error_of(errno);
}

// One datagram of the answer. True: it was the last.
absl::StatusOr<bool> read_links(Bytes rest, std::vector<Interface>& links) {
  while (!rest.empty()) {
    nlmsghdr header{};
    if (rest.size() < sizeof header) return error_of(EPROTO);
    std::memcpy(&header, rest.data(), sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > rest.size()) return error_of(EPROTO);
    Bytes body = rest.subspan(sizeof header, header.nlmsg_len - sizeof header);
    rest.remove_prefix(std::min(rest.size(), size_t{NLMSG_ALIGN(header.nlmsg_len)}));
    ifinfomsg info{};
    nlmsgerr error{};
    if (header.nlmsg_type == NLMSG_DONE) return true;
    if (header.nlmsg_type == NLMSG_ERROR) {
      return error_of(take(body, error) ? -error.error : EPROTO);
    }
    if (header.nlmsg_type == RTM_NEWLINK && take(body, info)) {
      links.push_back(parse_link(info, body));
    }
  }
  return false;
}

absl::StatusOr<std::vector<Interface>> probe_links() {
  const tcp::Socket socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (socket.fd() < 0) return error_of(errno);
  if (absl::Status status = ask_for_links(socket.fd()); !status.ok()) return status;
  std::vector<Interface> links;
  std::vector<char> buffer(64 << 10);  // more than the kernel puts into one
  for (;;) {
    const ssize_t length = recv(socket.fd(), buffer.data(), buffer.size(), 0);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return error_of(errno);
    const auto is_last = read_links({buffer.data(), static_cast<size_t>(length)}, links);
    if (!is_last.ok()) return is_last.status();
    if (*is_last) return links;
  }
}

// ---- Addresses ---------------------------------------------------------------------------------

InterfaceAddress parse_address(const sockaddr* address, const sockaddr* mask) {
  InterfaceAddress parsed;
  parsed.is_ipv6 = address->sa_family == AF_INET6;
  const size_t offset =
      parsed.is_ipv6 ? offsetof(sockaddr_in6, sin6_addr) : offsetof(sockaddr_in, sin_addr);
  const size_t length = parsed.is_ipv6 ? sizeof(in6_addr) : sizeof(in_addr);
  std::memcpy(parsed.bytes.data(), reinterpret_cast<const char*>(address) + offset, length);
  std::array<uint8_t, 16> bits{};
  std::memcpy(bits.data(), reinterpret_cast<const char*>(mask) + offset, length);
  for (const uint8_t byte : bits) parsed.prefix += std::popcount(byte);
  return parsed;
}

absl::Status probe_addresses(std::vector<Interface>& links) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return absl::ErrnoToStatus(errno, "listing the addresses");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    for (Interface& link : links) {
      if (link.name != entry->ifa_name) continue;
      link.addresses.push_back(parse_address(entry->ifa_addr, entry->ifa_netmask));
    }
  }
  return absl::OkStatus();
}

// ---- sysfs -------------------------------------------------------------------------------------

int read_number(const fs::path& file, int otherwise) {
  int number = 0;
  return absl::SimpleAtoi(read_file(file).value_or(""), &number) ? number : otherwise;
}

// 0000:3b:00.1
bool is_pci_address(absl::string_view name) {
  return name.size() >= 12 && name[name.size() - 2] == '.' && name[name.size() - 5] == ':' &&
         name[name.size() - 8] == ':';
}

// Other people's namespaces may be shown here if sysfs was not mounted in this one: what it says
// decides about preferences only.
void probe_hardware(Interface& link) {
  const fs::path folder = fs::path("/sys/class/net") / link.name;
  link.speed = std::max(0, read_number(folder / "speed", 0));  // -1: unknown
  std::error_code error;
  fs::path device = fs::canonical(folder / "device", error);
  // Between a NIC and its PCI device there may be another (virtio).
  for (; !error && device.has_relative_path(); device = device.parent_path()) {
    if (!is_pci_address(device.filename().string())) continue;
    link.pci = device.filename().string();
    link.numa_node = read_number(device / "numa_node", -1);
    return;
  }
}

// Of a bond, a VLAN or a bridge the first NIC that it goes by, which may be below another such; of
// others the interface itself.
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
  auto links = probe_links();
  if (!links.ok()) return links;
  if (absl::Status status = probe_addresses(*links); !status.ok()) return status;
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
