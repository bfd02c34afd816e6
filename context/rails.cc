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
#include "common/log.h"
#include "common/net/interface.h"
#include "flare_offload/core/slot_table.h"
#include "nezha/errors.h"
#include "rails/affinity.h"
#include "rails/nic_probe.h"
#include "transport/tcp/device.h"
#ifdef NEZHA_HAS_RDMA
#include "transport/rdma/rail.h"
#endif

namespace nezha {
namespace {

using Factory = absl::StatusOr<Endpoint::DeviceFactory>;

absl::StatusOr<tcp::DeviceOptions> parse_tcp(absl::string_view text, const RailUri& uri,
                                             const Cpus& cpus, const PortRange& ports) {
  tcp::DeviceOptions options;
  options.interface = options.rail = uri.interface;
  options.ports = ports;
  options.cpus = cpus;
  options.near = near_cpus(uri.interface);
  for (const auto& [key, value] : uri.options) {
    if (key == "rail") {
      options.rail = value;
    } else if (key == "family" && (value == "4" || value == "6")) {
      options.address.family = value == "6" ? AF_INET6 : AF_INET;
    } else if (key == "address") {
      const auto named = net::Address::parse_host(value);
      if (!named.ok()) return bad_rail(text, named.status().message());
      options.address.named = named->host();
    } else if (key == "cpus") {
      const auto named = parse_cpus(value);
      if (!named.ok()) return bad_rail(text, named.status().message());
      options.cpus = *named;
    } else {
      return bad_rail(
          text, absl::StrCat("'", key, "=", value,
                             "' is none of tcp's options: rail=NAME, address=ADDRESS, family=4, "
                             "family=6, cpus=LIST, streams=NUMBER"));
    }
  }
  if (!options.address.named.empty() && options.address.family != AF_UNSPEC) {
    return bad_rail(text, "give an address or a family, not both");
  }
  if (absl::Status status = check_rail_name(text, options.rail); !status.ok()) return status;
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

Cpus near_tcp(const RailUri& uri) { return near_cpus(uri.interface); }

absl::StatusOr<InterfaceOptions> way_of_tcp(absl::string_view text, const RailUri& uri) {
  const auto parsed = parse_tcp(text, uri, Cpus(), PortRange());
  if (!parsed.ok()) return parsed.status();
  return InterfaceOptions{
      .interface = parsed->interface, .rail = parsed->rail, .address = parsed->address};
}

// To add a kind of network, add a folder under transport/ and a line here.
constexpr RailKind kKinds[] = {
    {"tcp", &make_tcp, &near_tcp, &way_of_tcp},
#ifdef NEZHA_HAS_RDMA
    rdma::kRail,
#endif
};

const RailKind* find_kind(absl::string_view name) {
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const RailKind& kind) { return kind.name == name; });
  return found == std::end(kKinds) ? nullptr : found;
}

// Returns the usable devices for `uri`, which is KIND:auto.
absl::StatusOr<std::vector<std::string>> expand(absl::string_view uri, absl::string_view kind,
                                                DeviceLister list) {
  const auto devices = list(kind);
  if (!devices.ok()) return bad_rail(uri, devices.status().message());
  std::vector<std::string> uris;
  std::vector<std::string> reasons;
  for (const RailDevice& device : *devices) {
    log().info("rails = {}: {} {}: {}", std::string(uri), device.name,
               device.uri.empty() ? "is left out" : "is a rail", device.reason);
    if (!device.uri.empty()) uris.push_back(device.uri);
    reasons.push_back(absl::StrCat(device.name, ": ", device.reason));
  }
  if (!uris.empty()) return uris;
  return bad_rail(uri, absl::StrCat("no device can be used (", absl::StrJoin(reasons, "; "), ")"));
}

}  // namespace

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
    return bad_rail(text,
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
    } else if (key == "rail") {
      if (absl::Status status = check_rail_name(text, value); !status.ok()) return status;
      options.rail = value;
    } else if (key == "address" && net::Address::parse_host(value).ok()) {
      options.address = net::Address::parse_host(value)->host();
    } else if (key == "reproducible" && (value == "0" || value == "1")) {
      options.reproducible = value == "1";
    } else if (key == "stagger" && is_number && std::has_single_bit(number) &&
               number <= flare::Stagger::kMost) {
      options.stagger = number;
    } else {
      return bad_rail(text, absl::StrCat("'", key, "=", value, "' is none of flare's options: ",
                                         "rail=NAME, address=ADDRESS, window=BLOCKS, streams=1 to ",
                                         flare::message::kMaxStreams,
                                         ", reproducible=0, reproducible=1, stagger=1, 2, 4 to ",
                                         flare::Stagger::kMost));
    }
  }
  return options;
}

absl::StatusOr<std::vector<RailDevice>> devices_of(absl::string_view kind) {
  return find_kind(kind)->list();
}

bool has_list(absl::string_view kind) {
  const RailKind* known = find_kind(kind);
  return known != nullptr && known->list != nullptr;
}

absl::StatusOr<std::vector<std::string>> expand_rails(const std::vector<std::string>& uris,
                                                      DeviceLister list) {
  std::vector<std::string> all;
  for (const std::string& text : uris) {
    const auto uri = RailUri::parse(text);
    if (!uri.ok() || uri->interface != "auto" || !has_list(uri->kind)) {
      all.push_back(text);  // if it is invalid, device_factory says why
      continue;
    }
    if (!uri->options.empty()) return bad_rail(text, "auto takes no options; name the devices");
    const auto found = expand(text, uri->kind, list);
    if (!found.ok()) return found.status();
    all.insert(all.end(), found->begin(), found->end());
  }
  return all;
}

std::vector<RailDevice> railDevices() {
  std::vector<RailDevice> all;
  for (const RailKind& kind : kKinds) {
    if (kind.list == nullptr) continue;
    auto devices = kind.list();
    if (absl::IsNotFound(devices.status())) continue;
    if (!devices.ok()) throw IoError("nezha: " + std::string(devices.status().message()));
    all.insert(all.end(), devices->begin(), devices->end());
  }
  return all;
}

Factory device_factory(absl::string_view text, const Cpus& cpus, const PortRange& ports) {
  const auto uri = RailUri::parse(text);
  if (!uri.ok()) return uri.status();
  if (const RailKind* kind = find_kind(uri->kind)) return kind->make(text, *uri, cpus, ports);
  std::vector<absl::string_view> known;
  for (const RailKind& kind : kKinds) known.push_back(kind.name);
  known.emplace_back("flare");
  return bad_rail(text, absl::StrCat("'", uri->kind, "' is no kind of rail (there are: ",
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
      return bad_rail(uris[i], "the rail is named twice; name it once");
    }
    rails.push_back(*rail);
  }
  return rails;
}

absl::StatusOr<RailWay> way_of_rail(absl::string_view text) {
  const auto uri = RailUri::parse(text);
  if (!uri.ok()) return uri.status();
  const RailKind* kind = find_kind(uri->kind);
  if (kind == nullptr) return device_factory(text).status();
  const auto way = kind->way(text, *uri);
  if (absl::IsInvalidArgument(way.status())) return way.status();
  RailWay result{.kind = uri->kind, .connections = {}, .trouble = way.status()};
  if (way.ok()) {
    result.connections = *way;
  } else {
    const auto named = uri->options.find("rail");
    result.connections.rail = named == uri->options.end() ? uri->interface : named->second;
  }
  return result;
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

RailThreads threads_of(const std::vector<std::string>& uris, const CoreShare& share) {
  const std::string wanted = environment_value("NEZHA_RAIL_THREADS");
  const auto rails = static_cast<int>(uris.size());
  if (wanted == "1") return {.given = rails};
  const auto names_cores = [](const std::string& text) {
    const auto uri = RailUri::parse(text);
    return uri.ok() && uri->options.contains("cpus");
  };
  const auto named = static_cast<int>(std::count_if(uris.begin(), uris.end(), names_cores));
  if (wanted == "0") return {.given = named};
  return {.given = named, .spare = std::clamp(rail_threads(share) - named, 0, rails - named)};
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
      const RailKind* kind = find_kind(uri->kind);
      near.push_back(kind == nullptr ? Cpus() : kind->near(*uri));
      continue;
    }
    for (const int cpu : parse_cpus(named->second).value_or(Cpus())) free.erase(cpu);
  }
  const std::vector<Cpus> dealt = deal_cores(near, free.empty() ? allowed : free);
  for (size_t i = 0; i < unnamed.size(); ++i) cores[unnamed[i]] = dealt[i];
  return cores;
}

}  // namespace nezha
