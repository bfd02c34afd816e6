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
#include "control/affinity.h"
#include "control/nic_probe.h"
#include "flare_offload/core/slot_table.h"
#include "nezha/errors.h"
#include "transport/tcp/device.h"
#include "transport/wire.h"
#ifdef NEZHA_HAS_RDMA
#include "transport/rdma/device.h"
#include "transport/rdma/hca.h"
#endif

namespace nezha {
namespace {

using Factory = absl::StatusOr<Endpoint::DeviceFactory>;

absl::Status bad(absl::string_view uri, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("rail '", uri, "': ", why));
}

absl::Status check_rail_name(absl::string_view uri, const std::string& name) {
  const bool has_space = name.find_first_of(" \t\r\n") != std::string::npos;
  if (!name.empty() && name.size() <= wire::kMaxRailName && !has_space) return absl::OkStatus();
  return bad(uri, absl::StrCat("a rail's name has 1 to ", wire::kMaxRailName,
                               " characters and no spaces"));
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

#ifdef NEZHA_HAS_RDMA

absl::StatusOr<rdma::DeviceOptions> parse_rdma(absl::string_view text, const RailUri& uri,
                                               const Cpus& cpus) {
  const auto wish = rdma::Wish::parse(uri.interface);
  if (!wish.ok()) return bad(text, wish.status().message());
  rdma::DeviceOptions rail{.wish = *wish, .rail = uri.interface, .cpus = cpus};
  for (const auto& [key, value] : uri.options) {
    if (key == "rail") {
      rail.rail = value;
    } else if (key == "gid") {
      const auto gid = rdma::Wish::parse_gid(value);
      if (!gid.ok()) return bad(text, gid.status().message());
      rail.wish.gid = *gid;
    } else if (key == "address") {
      const auto named = net::Address::parse_host(value);
      if (!named.ok()) return bad(text, named.status().message());
      rail.wish.address = named->host();
    } else if (key == "via" && !value.empty()) {
      rail.wish.via = value;
    } else if (key == "cpus") {
      const auto named = parse_cpus(value);
      if (!named.ok()) return bad(text, named.status().message());
      rail.cpus = *named;
    } else {
      return bad(text, absl::StrCat("'", key, "=", value,
                                    "' is none of rdma's options: rail=NAME, gid=INDEX, "
                                    "address=ADDRESS, via=INTERFACE, cpus=LIST"));
    }
  }
  if (absl::Status status = check_rail_name(text, rail.rail); !status.ok()) return status;
  return rail;
}

Cpus near_rdma(const RailUri& uri) {
  const auto wish = rdma::Wish::parse(uri.interface);
  return wish.ok() ? rdma::near_cpus(wish->device) : Cpus();
}

Factory make_rdma(absl::string_view text, const RailUri& uri, const Cpus& cpus,
                  const PortRange& ports) {
  auto parsed = parse_rdma(text, uri, cpus);
  if (!parsed.ok()) return parsed.status();
  parsed->ports = ports;
  return Endpoint::DeviceFactory(
      [options = *parsed](Progress& progress, Acceptor& acceptor,
                          Rail rail) -> absl::StatusOr<std::unique_ptr<Device>> {
        auto device = rdma::RdmaDevice::create(progress, acceptor, rail, options);
        if (!device.ok()) return device.status();
        return std::unique_ptr<Device>(*std::move(device));
      });
}

RailDevice describe(const rdma::Hca& hca, const rdma::Port& port, const rdma::Machine& machine) {
  RailDevice device;
  device.name = rdma::name_of(hca, port);
  device.kind = "rdma";
  device.mtu = port.mtu;
  device.speed = static_cast<int>(port.speed * 8 / 1e6);
  device.pci = hca.pci;
  device.numa_node = hca.numa_node;
  const auto choice = rdma::choose({.device = hca.name, .port = port.number}, machine);
  if (!choice.ok()) {
    device.reason = std::string(choice.status().message());
    return device;
  }
  device.interface = choice->via;
  device.address = choice->gid.address().host();
  device.uri = absl::StrCat("rdma:", device.name);
  device.reason = choice->why;
  return device;
}

absl::StatusOr<std::vector<RailDevice>> list_rdma() {
  const auto machine = rdma::Machine::look(rdma::libibverbs());
  if (!machine.ok()) return machine.status();
  std::vector<RailDevice> devices;
  for (const rdma::Hca& hca : machine->hcas) {
    for (const rdma::Port& port : hca.ports) devices.push_back(describe(hca, port, *machine));
    if (!hca.ports.empty()) continue;
    RailDevice& device = devices.emplace_back();
    device.name = hca.name;
    device.kind = "rdma";
    device.reason = std::string(hca.error.message());
  }
  if (devices.empty()) return rdma::choose({}, *machine).status();
  return devices;
}

#endif

// Adding a kind of network: a folder under transport/, and a line here.
struct Kind {
  absl::string_view name;
  Factory (*make)(absl::string_view text, const RailUri& uri, const Cpus& cpus,
                  const PortRange& ports);
  // The cores near the device that the URI names; empty if they are not known.
  Cpus (*near)(const RailUri& uri);
  // As devices_of. Null: the devices are named after network interfaces.
  absl::StatusOr<std::vector<RailDevice>> (*list)() = nullptr;
};
constexpr Kind kKinds[] = {
    {"tcp", &make_tcp, &near_tcp},
#ifdef NEZHA_HAS_RDMA
    {"rdma", &make_rdma, &near_rdma, &list_rdma},
#endif
};

const Kind* find_kind(absl::string_view name) {
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const Kind& kind) { return kind.name == name; });
  return found == std::end(kKinds) ? nullptr : found;
}

// The devices that stand in the place of `uri`, which is KIND:auto.
absl::StatusOr<std::vector<std::string>> expand(absl::string_view uri, absl::string_view kind,
                                                DeviceLister list) {
  const auto devices = list(kind);
  if (!devices.ok()) return bad(uri, devices.status().message());
  std::vector<std::string> uris;
  std::vector<std::string> reasons;
  for (const RailDevice& device : *devices) {
    log().info("rails = {}: {} {}: {}", std::string(uri), device.name,
               device.uri.empty() ? "is left" : "is a rail", device.reason);
    if (!device.uri.empty()) uris.push_back(device.uri);
    reasons.push_back(absl::StrCat(device.name, ": ", device.reason));
  }
  if (!uris.empty()) return uris;
  return bad(uri, absl::StrCat("no device can be used (", absl::StrJoin(reasons, "; "), ")"));
}

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

absl::StatusOr<std::vector<RailDevice>> devices_of(absl::string_view kind) {
  return find_kind(kind)->list();
}

bool has_list(absl::string_view kind) {
  const Kind* known = find_kind(kind);
  return known != nullptr && known->list != nullptr;
}

absl::StatusOr<std::vector<std::string>> expand_rails(const std::vector<std::string>& uris,
                                                      DeviceLister list) {
  std::vector<std::string> all;
  for (const std::string& text : uris) {
    const auto uri = RailUri::parse(text);
    if (!uri.ok() || uri->interface != "auto" || !has_list(uri->kind)) {
      all.push_back(text);  // device_factory says what is wrong with it
      continue;
    }
    if (!uri->options.empty()) return bad(text, "auto takes no options; name the devices");
    const auto found = expand(text, uri->kind, list);
    if (!found.ok()) return found.status();
    all.insert(all.end(), found->begin(), found->end());
  }
  return all;
}

std::vector<RailDevice> railDevices() {
  std::vector<RailDevice> all;
  for (const Kind& kind : kKinds) {
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
  if (const Kind* kind = find_kind(uri->kind)) return kind->make(text, *uri, cpus, ports);
  std::vector<absl::string_view> known;
  for (const Kind& kind : kKinds) known.push_back(kind.name);
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
      const Kind* kind = find_kind(uri->kind);
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
