// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/rail.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "transport/rdma/device.h"
#include "transport/rdma/hca.h"
#include "transport/rdma/lookout.h"

namespace nezha::rdma {
namespace {

absl::StatusOr<DeviceOptions> parse(absl::string_view text, const RailUri& uri, const Cpus& cpus) {
  const auto wish = Wish::parse(uri.interface);
  if (!wish.ok()) return bad_rail(text, wish.status().message());
  DeviceOptions rail{.wish = *wish, .rail = uri.interface, .cpus = cpus};
  for (const auto& [key, value] : uri.options) {
    if (key == "rail") {
      rail.rail = value;
    } else if (key == "gid") {
      const auto gid = Wish::parse_gid(value);
      if (!gid.ok()) return bad_rail(text, gid.status().message());
      rail.wish.gid = *gid;
    } else if (key == "address") {
      const auto named = net::Address::parse_host(value);
      if (!named.ok()) return bad_rail(text, named.status().message());
      rail.wish.address = named->host();
    } else if (key == "via" && !value.empty()) {
      rail.wish.via = value;
    } else if (key == "cpus") {
      const auto named = parse_cpus(value);
      if (!named.ok()) return bad_rail(text, named.status().message());
      rail.cpus = *named;
    } else {
      return bad_rail(text, absl::StrCat("'", key, "=", value,
                                         "' is none of rdma's options: rail=NAME, gid=INDEX, "
                                         "address=ADDRESS, via=INTERFACE, cpus=LIST"));
    }
  }
  if (absl::Status status = check_rail_name(text, rail.rail); !status.ok()) return status;
  return rail;
}

RailDevice describe(const Hca& hca, const Port& port, const Machine& machine) {
  RailDevice device;
  device.name = name_of(hca, port);
  device.kind = std::string(kRail.name);
  device.mtu = port.mtu;
  device.speed = static_cast<int>(port.speed * 8 / 1e6);
  device.pci = hca.pci;
  device.numa_node = hca.numa_node;
  const auto choice = choose({.device = hca.name, .port = port.number}, machine);
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

}  // namespace

Cpus near_rail(const RailUri& uri) {
  const auto wish = Wish::parse(uri.interface);
  return wish.ok() ? near_cpus(wish->device) : Cpus();
}

absl::StatusOr<Endpoint::DeviceFactory> make_rail(absl::string_view text, const RailUri& uri,
                                                  const Cpus& cpus, const PortRange& ports) {
  auto parsed = parse(text, uri, cpus);
  if (!parsed.ok()) return parsed.status();
  parsed->ports = ports;
  return Endpoint::DeviceFactory(
      [options = *parsed](Progress& progress, Acceptor& acceptor,
                          Rail rail) -> absl::StatusOr<std::unique_ptr<Device>> {
        auto device = RdmaDevice::create(progress, acceptor, rail, options);
        if (!device.ok()) return device.status();
        return std::unique_ptr<Device>(*std::move(device));
      });
}

absl::StatusOr<InterfaceOptions> way_of_rail(absl::string_view text, const RailUri& uri) {
  const auto parsed = parse(text, uri, Cpus());
  if (!parsed.ok()) return parsed.status();
  const auto choice = choose_now(parsed->wish, libibverbs());
  if (!choice.ok()) {
    // It is not the URI's fault if the machine lacks something.
    return absl::UnavailableError(choice.status().message());
  }
  InterfaceOptions way;
  way.interface = choice->via;
  way.rail = parsed->rail;
  way.address.named = parsed->wish.address;
  return way;
}

absl::StatusOr<std::vector<RailDevice>> list_rails() {
  const auto machine = Machine::look(libibverbs());
  if (!machine.ok()) return machine.status();
  std::vector<RailDevice> devices;
  for (const Hca& hca : machine->hcas) {
    for (const Port& port : hca.ports) devices.push_back(describe(hca, port, *machine));
    if (!hca.ports.empty()) continue;
    RailDevice& device = devices.emplace_back();
    device.name = hca.name;
    device.kind = std::string(kRail.name);
    device.reason = std::string(hca.error.message());
  }
  if (devices.empty()) return choose({}, *machine).status();
  return devices;
}

}  // namespace nezha::rdma
