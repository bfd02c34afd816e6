// SPDX-License-Identifier: Apache-2.0
#include "check/own_rails.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/descriptor.h"
#include "common/host.h"
#include "common/log.h"
#include "common/net/interface.h"
#include "context/auto_rails.h"
#include "rails/nic_probe.h"
#include "rails/streams.h"

namespace nezha::check {
namespace {

// Returns the value of an IPv4 setting that takes effect on an interface, or 0 if the kernel does
// not tell.
int ipv4_setting(const std::string& interface, const std::string& name) {
  int largest = 0;
  for (const std::string& whose : {std::string("all"), interface}) {
    const auto text = read_file(absl::StrCat("/proc/sys/net/ipv4/conf/", whose, "/", name), 16);
    int value = 0;
    if (text && absl::SimpleAtoi(*text, &value)) largest = std::max(largest, value);
  }
  return largest;
}

const InterfaceAddress* find_address(const Interface& interface, const std::string& host) {
  for (const InterfaceAddress& address : interface.addresses) {
    if (absl::StrCat(host, "/", address.prefix) == address.str()) return &address;
  }
  return nullptr;
}

// Returns another interface of the host with an address in the same subnet, or "" if there is none.
std::string sibling_of(const Interface& interface, const InterfaceAddress& subnet,
                       const std::vector<Interface>& interfaces) {
  for (const Interface& other : interfaces) {
    if (other.index == interface.index || other.is_loopback) continue;
    for (const InterfaceAddress& address : other.addresses) {
      if (address.subnet() == subnet && !address.is_link_local()) return other.name;
    }
  }
  return "";
}

void describe(RailEnd& end, const std::vector<Interface>& interfaces) {
  for (const Interface& interface : interfaces) {
    if (interface.name != end.interface) continue;
    end.mtu = interface.mtu;
    end.is_running = interface.is_up && interface.has_carrier;
    end.is_loopback = interface.is_loopback;
    if (const InterfaceAddress* address = find_address(interface, end.address)) {
      end.subnet = address->subnet().str();
      end.sibling = sibling_of(interface, address->subnet(), interfaces);
    }
  }
  end.rp_filter = ipv4_setting(end.interface, "rp_filter");
  end.arp_ignore = ipv4_setting(end.interface, "arp_ignore");
  end.arp_filter = ipv4_setting(end.interface, "arp_filter");
}

absl::StatusOr<net::Address> address_of(const RailWay& way, Nanos deadline) {
  if (!way.trouble.ok()) return way.trouble;
  for (;;) {
    auto address = net::interface_address(way.connections.interface, way.connections.address);
    if (!absl::IsUnavailable(address.status()) || now() >= deadline) return address;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

absl::StatusOr<WantedRails> wanted_rails(const std::vector<std::string>& list) {
  WantedRails wanted;
  std::vector<std::string> uris = list;
  if (is_auto(list)) {
    auto found = find_rails(list, log());
    if (!found.ok()) return found.status();
    uris = std::move(found->uris);
    wanted.found = true;
  }
  auto all = expand_rails(uris);
  if (all.ok()) all = expand_streams(*all);
  if (!all.ok()) return all.status();
  std::set<std::string> names;
  for (const std::string& uri : *all) {
    if (is_switch_rail(uri)) {
      wanted.skipped.push_back(uri);
      continue;
    }
    auto way = way_of_rail(uri);
    if (!way.ok()) return way.status();
    const std::string& name = way->connections.rail;
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two rails are called '", name, "'; ?rail=NAME gives another name"));
    }
    wanted.rails.push_back({uri, *std::move(way)});
  }
  if (wanted.rails.empty()) return absl::InvalidArgumentError("there is no rail of links to test");
  return wanted;
}

absl::StatusOr<std::vector<OwnRail>> own_rails(const WantedRails& wanted, Nanos deadline) {
  std::vector<OwnRail> rails;
  for (const auto& [uri, way] : wanted.rails) {
    OwnRail& rail = rails.emplace_back();
    rail.uri = uri;
    rail.end.rail = way.connections.rail;
    rail.end.kind = way.kind;
    rail.end.interface = way.connections.interface;
    rail.end.is_found = wanted.found;
    const auto address = address_of(way, deadline);
    if (!address.ok()) {
      rail.end.error = std::string(address.status().message());
      continue;
    }
    rail.address = *address;
    rail.end.address = address->host();
  }
  const auto interfaces = probe_interfaces();
  if (!interfaces.ok()) return interfaces.status();
  for (OwnRail& rail : rails) describe(rail.end, *interfaces);
  return rails;
}

RankFacts describe_host() {
  RankFacts facts;
  facts.host = host_name();
  const std::string kernel = read_file("/proc/sys/kernel/random/boot_id", 64).value_or("");
  struct stat status {};
  const bool is_known = stat("/proc/self/ns/net", &status) == 0;
  facts.namespace_id = absl::StrCat(facts.host, "/", absl::StripAsciiWhitespace(kernel), "/",
                                    is_known ? status.st_ino : 0);
  return facts;
}

}  // namespace nezha::check
