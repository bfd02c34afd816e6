// SPDX-License-Identifier: Apache-2.0
#include "rails/nic_selector.h"

#include <fnmatch.h>

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "transport/wire.h"

namespace nezha {
namespace {

// A device this many times slower than the fastest (the management port of a host with fast NICs)
// would add little, and delay what is sent by it.
constexpr int kTooSlow = 10;

// The length of a NIC's number in a rail's name: #16.
constexpr size_t kNumberSize = 3;

// The kinds of interfaces that lead out of the host, and what to call them.
struct Kind {
  absl::string_view name;
  absl::string_view words;
};
constexpr Kind kKinds[] = {
    {"", "a NIC"},           {"ipoib", "an InfiniBand port"},
    {"bond", "a bond"},      {"team", "a team"},
    {"vlan", "a VLAN"},      {"macvlan", "a macvlan"},
    {"ipvlan", "an ipvlan"}, {"bridge", "a bridge with a NIC"},
};

const Kind* find_kind(absl::string_view name) {
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const Kind& kind) { return kind.name == name; });
  return found == std::end(kKinds) ? nullptr : found;
}

// Returns whether the interface is the end of a cable made by software. On a host such a cable
// leads to a container; in a container it takes the place of a NIC.
bool is_virtual_cable(const Interface& interface) {
  return interface.kind == "veth" || interface.kind == "netkit";
}

// A virtual router (VRF) is also a master, but its ports keep their addresses.
bool is_port(const Interface& interface) {
  return interface.master != 0 && interface.port_kind != "vrf";
}

// Orders eth2 before eth10.
bool named_before(const std::string& a, const std::string& b) {
  return std::make_pair(a.size(), a) < std::make_pair(b.size(), b);
}

// Returns the address that a tcp device on this interface has (net::choose_address), or null.
const InterfaceAddress* address_of(const Interface& interface) {
  const InterfaceAddress* best = nullptr;
  const auto rank = [](const InterfaceAddress& address) {
    return !address.is_ipv6 ? 2 : address.is_link_local() ? 0 : 1;
  };
  for (const InterfaceAddress& address : interface.addresses) {
    if (best == nullptr || rank(address) > rank(*best)) best = &address;
  }
  return best;
}

class Selector {
 public:
  Selector(const std::vector<Interface>& interfaces, const std::set<int>& near_nodes,
           const std::vector<std::string>& unwanted)
      : near_nodes_(near_nodes), unwanted_(unwanted) {
    for (const Interface& interface : interfaces) candidates_.push_back({interface, {}, 0, {}});
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
      return named_before(a.interface.name, b.interface.name);
    });
  }

  std::vector<Choice> select(size_t limit) {
    leave_what_is_no_way_out();
    leave_virtual_cables();
    name_rails();
    leave_unwanted();
    leave_what_is_down();
    leave_shared_wires();
    leave_slow_ones();
    leave_all_but(limit);
    return choices();
  }

 private:
  struct Candidate {
    Interface interface;
    InterfaceAddress subnet;
    int number = 0;  // among the NICs on the subnet, from 1; 0: the rail has the interface's name
    std::string why_left;  // empty: it is still a candidate
  };

  // Calls `reason` for all remaining candidates. It returns why one is left out, or nothing.
  template <typename Reason>
  void leave(Reason reason) {
    for (Candidate& candidate : candidates_) {
      if (candidate.why_left.empty()) candidate.why_left = reason(candidate.interface);
    }
  }

  std::vector<Candidate*> remaining() {
    std::vector<Candidate*> found;
    for (Candidate& candidate : candidates_) {
      if (candidate.why_left.empty()) found.push_back(&candidate);
    }
    return found;
  }

  const Interface* find(int index) const {
    for (const Candidate& candidate : candidates_) {
      if (candidate.interface.index == index && index != 0) return &candidate.interface;
    }
    return nullptr;
  }

  std::string name_of(int index) const {
    const Interface* found = find(index);
    return found == nullptr ? absl::StrCat("interface ", index) : found->name;
  }

  // Returns the bridge's port that leads out of the host, or null.
  const Interface* way_out_of(const Interface& bridge) const {
    for (const Candidate& candidate : candidates_) {
      const Interface& port = candidate.interface;
      if (port.master == bridge.index && port.kind != "bridge" && find_kind(port.kind) != nullptr) {
        return &port;
      }
    }
    return nullptr;
  }

  void leave_what_is_no_way_out() {
    leave([&](const Interface& interface) -> std::string {
      if (interface.is_loopback) return "loopback";
      if (is_port(interface)) {
        return absl::StrCat("a port of ", name_of(interface.master), ", which stands for it");
      }
      if (find_kind(interface.kind) == nullptr && !is_virtual_cable(interface)) {
        return absl::StrCat("made by software (", interface.kind, ")");
      }
      if (interface.kind == "bridge" && way_out_of(interface) == nullptr) {
        return "a bridge without a NIC";
      }
      const InterfaceAddress* address = address_of(interface);
      if (address == nullptr) return "no IPv4 or IPv6 address";
      if (address->is_link_local()) return "no address but a link-local one";
      return "";
    });
  }

  void leave_virtual_cables() {
    const auto on_cable = [&](const Interface& interface) {
      return is_virtual_cable(*wire_of(interface).first);
    };
    const auto rest = remaining();
    if (std::all_of(rest.begin(), rest.end(),
                    [&](const Candidate* each) { return on_cable(each->interface); })) {
      return;
    }
    leave([&](const Interface& interface) -> std::string {
      if (!on_cable(interface)) return "";
      return absl::StrCat("made by software (", interface.kind, "), on a host that has NICs");
    });
  }

  // Runs before unwanted interfaces and those that are down are left out: the names of the other
  // rails must depend neither on cables nor on what one rank does not want.
  void name_rails() {
    std::map<InterfaceAddress, int> on_subnet;
    for (Candidate* each : remaining()) {
      const InterfaceAddress& address = *address_of(each->interface);
      const InterfaceAddress subnet = address.subnet();
      const bool has_subnet = address.prefix < address.bits();
      if (!has_subnet || subnet.str().size() + kNumberSize > wire::kMaxRailName) continue;
      each->subnet = subnet;
      each->number = ++on_subnet[subnet];
    }
  }

  static std::string rail_of(const Candidate& candidate) {
    if (candidate.number == 0) return candidate.interface.name;
    const std::string subnet = candidate.subnet.str();
    return candidate.number == 1 ? subnet : absl::StrCat(subnet, "#", candidate.number);
  }

  // Returns the sort key for the order of the rails.
  static auto place(const Candidate& candidate) {
    const std::string& name = candidate.interface.name;
    return std::make_tuple(candidate.number == 0, candidate.subnet, candidate.number, name.size(),
                           name);
  }

  void leave_unwanted() {
    leave([&](const Interface& interface) -> std::string {
      for (const std::string& pattern : unwanted_) {
        if (fnmatch(pattern.c_str(), interface.name.c_str(), 0) == 0) {
          return absl::StrCat("not wanted: !", pattern);
        }
      }
      return "";
    });
  }

  void leave_what_is_down() {
    leave([](const Interface& interface) -> std::string {
      if (!interface.is_up) return "down";
      return interface.has_carrier ? "" : "no carrier";
    });
  }

  // Returns the device at the bottom, and how far down it is. The kernel allows eight devices on
  // top of each other.
  std::pair<const Interface*, int> wire_of(const Interface& interface) const {
    const Interface* at = &interface;
    for (int depth = 0;; ++depth) {
      const Interface* below = at->kind == "bridge" ? way_out_of(*at) : find(at->lower);
      if (below == nullptr || depth == 8) return {at, depth};
      at = below;
    }
  }

  // Each rail is its own failure domain, so of several interfaces on one wire the lowest is taken.
  void leave_shared_wires() {
    std::map<std::string, const Candidate*> by_wire;
    auto rest = remaining();
    const auto order = [&](const Candidate* each) {
      return std::make_pair(wire_of(each->interface).second, place(*each));
    };
    std::sort(rest.begin(), rest.end(),
              [&](const Candidate* a, const Candidate* b) { return order(a) < order(b); });
    for (Candidate* each : rest) {
      const std::string& wire = wire_of(each->interface).first->name;
      const auto [taken, is_first] = by_wire.emplace(wire, each);
      if (is_first) continue;
      each->why_left =
          absl::StrCat("on the same wire as ", taken->second->interface.name, ", which is taken");
    }
  }

  void leave_slow_ones() {
    int fastest = 0;
    for (const Candidate* each : remaining()) fastest = std::max(fastest, each->interface.speed);
    leave([&](const Interface& interface) -> std::string {
      if (interface.speed <= 0 || interface.speed > fastest / kTooSlow) return "";
      return absl::StrCat("slow: ", interface.speed, " Mbit/s, where the fastest has ", fastest);
    });
  }

  void leave_all_but(size_t limit) {
    auto rest = remaining();
    if (rest.size() <= limit) return;
    std::map<std::string, int> of_card;
    std::map<const Candidate*, int> port;  // the port's number on its card, from 0
    for (const Candidate* each : rest) {
      const std::string& pci = wire_of(each->interface).first->pci;
      port[each] = pci.empty() ? 0 : of_card[pci.substr(0, pci.rfind('.'))]++;
    }
    const auto preference = [&](const Candidate* each) {
      const int node = wire_of(each->interface).first->numa_node;
      const bool is_far = node >= 0 && !near_nodes_.empty() && !near_nodes_.contains(node);
      return std::make_tuple(port[each], is_far, -each->interface.speed, place(*each));
    };
    std::sort(rest.begin(), rest.end(), [&](const Candidate* a, const Candidate* b) {
      return preference(a) < preference(b);
    });
    for (size_t i = limit; i < rest.size(); ++i) {
      rest[i]->why_left = absl::StrCat(
          "beyond the limit of ", limit,
          " rails: others are on other cards, nearer to the CPUs, faster or before it");
    }
  }

  static std::string why_taken(const Candidate& candidate) {
    const Interface& interface = candidate.interface;
    if (is_virtual_cable(interface)) {
      return absl::StrCat("there is no NIC here, but this ", interface.kind, ": a container");
    }
    return std::string(find_kind(interface.kind)->words);
  }

  std::vector<Choice> choices() {
    auto taken = remaining();
    std::sort(taken.begin(), taken.end(),
              [](const Candidate* a, const Candidate* b) { return place(*a) < place(*b); });
    std::vector<Choice> all;
    all.reserve(candidates_.size());
    for (const Candidate* each : taken) {
      all.push_back({each->interface, rail_of(*each), why_taken(*each)});
    }
    for (const Candidate& each : candidates_) {
      if (!each.why_left.empty()) all.push_back({each.interface, "", each.why_left});
    }
    return all;
  }

  const std::set<int>& near_nodes_;
  const std::vector<std::string>& unwanted_;
  std::vector<Candidate> candidates_;  // sorted by name
};

}  // namespace

std::vector<Choice> select_nics(const std::vector<Interface>& interfaces,
                                const std::set<int>& near_nodes, size_t limit,
                                const std::vector<std::string>& unwanted) {
  return Selector(interfaces, near_nodes, unwanted).select(limit);
}

std::map<std::string, std::string> pair_rails(const ChosenInterfaces& here,
                                              const ChosenInterfaces& there) {
  std::map<std::string, std::string> pairs;
  std::map<std::string, std::string> left_there;  // rail by interface
  for (const auto& [rail, interface] : there) {
    if (here.contains(rail)) {
      pairs[rail] = rail;
    } else if (!interface.empty()) {
      left_there[interface] = rail;
    }
  }
  for (const auto& [rail, interface] : here) {
    const auto partner = left_there.find(interface);
    if (!pairs.contains(rail) && partner != left_there.end()) pairs[rail] = partner->second;
  }
  return pairs;
}

}  // namespace nezha
