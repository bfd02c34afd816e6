// SPDX-License-Identifier: Apache-2.0
#include "context/rails.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/environment.h"
#include "common/net/interface.h"
#include "control/affinity.h"
#include "control/nic_probe.h"
#include "flare_offload/core/slot_table.h"
#include "transport/tcp/device.h"
#include "transport/wire.h"

namespace nezha {
namespace {

using Factory = absl::StatusOr<Endpoint::DeviceFactory>;

absl::Status bad(absl::string_view uri, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("rail '", uri, "': ", why));
}

absl::StatusOr<tcp::DeviceOptions> parse_tcp(absl::string_view text, const RailUri& uri,
                                             const Cpus& cpus, const PortRange& ports) {
  tcp::DeviceOptions options;
  options.interface = options.rail = uri.interface;
  options.ports = ports;
  options.cpus = cpus;
  for (const auto& [key, value] : uri.options) {
    if (key == "rail") {
      options.rail = value;
    } else if (key == "family" && (value == "4" || value == "6")) {
      options.address.family = value == "6" ? AF_INET6 : AF_INET;
    } else if (key == "address") {
      const auto named = net::Address::parse_host(value);
      if (!named.ok()) return bad(text, named.status().message());
      options.address.named = named->host();
    } else if (key == "cpus") {
      const auto named = parse_cpus(value);
      if (!named.ok()) return bad(text, named.status().message());
      options.cpus = *named;
    } else {
      return bad(text,
                 absl::StrCat("'", key, "=", value,
                              "' is none of tcp's options: rail=NAME, address=ADDRESS, family=4, "
                              "family=6, cpus=LIST"));
    }
  }
  if (!options.address.named.empty() && options.address.family != AF_UNSPEC) {
    return bad(text, "give an address or a family, not both");
  }
  if (options.rail.empty() || options.rail.size() > wire::kMaxRailName ||
      options.rail.find_first_of(" \t\r\n") != std::string::npos) {
    return bad(text, absl::StrCat("a rail's name has 1 to ", wire::kMaxRailName,
                                  " characters and no spaces"));
  }
  return options;
}

Factory make_tcp(absl::string_view text, const RailUri& uri, const Cpus& cpus,
                 const PortRange& ports) {
  const auto parsed = parse_tcp(text, uri, cpus, ports);
  if (!parsed.ok()) return parsed.status();
  return Endpoint::DeviceFactory(
      [options = *parsed](Progress& progress, Acceptor& acceptor,
                          Rail rail) -> absl::StatusOr<std::unique_ptr<Device>> {
        auto device = tcp::TcpDevice::create(progress, acceptor, rail, options);
        if (!device.ok()) return device.status();
        return std::unique_ptr<Device>(*std::move(device));
      });
}

// Adding a kind of network: a folder under transport/, and a line here.
struct Kind {
  absl::string_view name;
  Factory (*make)(absl::string_view text, const RailUri& uri, const Cpus& cpus,
                  const PortRange& ports);
};
constexpr Kind kKinds[] = {
    {"tcp", &make_tcp},
};

}  // namespace

absl::StatusOr<RailUri> RailUri::parse(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits('?', 1));
  const std::pair<absl::string_view, absl::string_view> name =
      absl::StrSplit(halves.first, absl::MaxSplits(':', 1));
  RailUri uri;
  uri.kind = std::string(name.first);
  uri.interface = std::string(name.second);
  if (uri.kind.empty() || uri.interface.empty()) {
    return bad(text, "not of the form KIND:INTERFACE, such as tcp:eth0");
  }
  for (const absl::string_view option : absl::StrSplit(halves.second, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(option, absl::MaxSplits('=', 1));
    if (!uri.options.emplace(std::string(pair.first), std::string(pair.second)).second) {
      return bad(text, absl::StrCat("'", pair.first, "' is given twice"));
    }
  }
  return uri;
}

bool is_switch_rail(absl::string_view text) { return absl::StartsWith(text, "flare:"); }

absl::StatusOr<flare::FlareOptions> switch_rail(absl::string_view text) {
  const auto uri = RailUri::parse(text);
  if (!uri.ok()) return uri.status();
  const size_t at = uri->interface.find('@');
  flare::FlareOptions options;
  options.interface = uri->interface.substr(0, at);
  const auto manager = at == std::string::npos ? absl::InvalidArgumentError("no manager")
                                               : net::Address::parse(uri->interface.substr(at + 1));
  if (options.interface.empty() || !manager.ok()) {
    return bad(text,
               "not of the form flare:INTERFACE@ADDRESS:PORT, with a nezha-manager's address");
  }
  options.manager = *manager;
  for (const auto& [key, value] : uri->options) {
    uint32_t number = 0;
    const bool is_number = absl::SimpleAtoi(value, &number) && number > 0;
    if (key == "window" && is_number && number <= flare::kMaxWindow) {
      options.window = number;
    } else if (key == "streams" && is_number && number <= flare::message::kMaxStreams) {
      options.streams = static_cast<int>(number);
    } else if (key == "address" && net::Address::parse_host(value).ok()) {
      options.address = net::Address::parse_host(value)->host();
    } else if (key == "reproducible" && (value == "0" || value == "1")) {
      options.reproducible = value == "1";
    } else if (key == "stagger" && is_number && std::has_single_bit(number) &&
               number <= flare::Stagger::kMost) {
      options.stagger = number;
    } else {
      return bad(text, absl::StrCat("'", key, "=", value, "' is none of flare's options: ",
                                    "address=ADDRESS, window=BLOCKS, streams=1 to ",
                                    flare::message::kMaxStreams,
                                    ", reproducible=0, reproducible=1, stagger=1, 2, 4 to ",
                                    flare::Stagger::kMost));
    }
  }
  return options;
}

Factory device_factory(absl::string_view text, const Cpus& cpus, const PortRange& ports) {
  const auto uri = RailUri::parse(text);
  if (!uri.ok()) return uri.status();
  std::vector<absl::string_view> known;
  for (const Kind& kind : kKinds) {
    if (kind.name == uri->kind) return kind.make(text, *uri, cpus, ports);
    known.push_back(kind.name);
  }
  known.emplace_back("flare");
  return bad(text, absl::StrCat("'", uri->kind, "' is no kind of rail (there are: ",
                                absl::StrJoin(known, ", "), ")"));
}

absl::StatusOr<std::vector<Rail>> open_devices(Endpoint& endpoint,
                                               const std::vector<std::string>& uris,
                                               absl::string_view ports) {
  const std::vector<Cpus> cores = cores_for(uris);
  const PortRange range = PortRange::parse(ports).value_or(PortRange());
  std::vector<Rail> rails;
  Progress::Guard guard(endpoint.progress());
  for (size_t i = 0; i < uris.size(); ++i) {
    const auto make = device_factory(uris[i], cores[i], range);
    if (!make.ok()) return make.status();
    const absl::StatusOr<Rail> rail = endpoint.open_device(uris[i], *make);
    if (!rail.ok()) {
      return absl::Status(rail.status().code(),
                          absl::StrCat("rail '", uris[i], "': ", rail.status().message()));
    }
    if (std::find(rails.begin(), rails.end(), *rail) != rails.end()) {
      return bad(uris[i], "it is named twice");
    }
    rails.push_back(*rail);
  }
  return rails;
}

absl::StatusOr<tcp::DeviceOptions> tcp_device(absl::string_view text, const PortRange& ports) {
  const auto uri = RailUri::parse(text);
  if (!uri.ok()) return uri.status();
  if (uri->kind != "tcp") return bad(text, "it is no tcp rail");
  return parse_tcp(text, *uri, Cpus(), ports);
}

void await_addresses(const std::vector<std::string>& uris, Nanos deadline) {
  for (const std::string& text : uris) {
    net::AddressWish wish;
    const auto uri = RailUri::parse(text);
    if (!uri.ok()) continue;  // device_factory says why
    const auto family = uri->options.find("family");
    const auto named = uri->options.find("address");
    if (family != uri->options.end()) wish.family = family->second == "6" ? AF_INET6 : AF_INET;
    if (named != uri->options.end()) {
      wish.named = net::Address::parse_host(named->second).value_or(net::Address()).host();
    }
    const std::string interface = uri->interface.substr(0, uri->interface.find('@'));
    while (absl::IsUnavailable(net::interface_address(interface, wish).status()) &&
           now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

std::vector<Cpus> cores_for(const std::vector<std::string>& uris) {
  std::vector<Cpus> cores(uris.size());
  if (environment("NEZHA_RAIL_THREADS") != "1") return cores;
  const Cpus allowed = allowed_cpus();
  Cpus free = allowed;
  std::vector<size_t> unnamed;
  std::vector<Cpus> near;
  for (size_t i = 0; i < uris.size(); ++i) {
    const auto uri = RailUri::parse(uris[i]);
    if (!uri.ok()) continue;  // device_factory says why
    const auto named = uri->options.find("cpus");
    if (named == uri->options.end()) {
      unnamed.push_back(i);
      near.push_back(near_cpus(uri->interface));
      continue;
    }
    for (const int cpu : parse_cpus(named->second).value_or(Cpus())) free.erase(cpu);
  }
  const std::vector<Cpus> dealt = deal_cores(near, free.empty() ? allowed : free);
  for (size_t i = 0; i < unnamed.size(); ++i) cores[unnamed[i]] = dealt[i];
  return cores;
}

}  // namespace nezha
