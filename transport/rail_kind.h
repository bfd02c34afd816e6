// SPDX-License-Identifier: Apache-2.0
// A kind of rail as it describes itself: its name, what its URIs mean, and the devices that the
// machine has of it. The registry is in context/rails.cc.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/cpus.h"
#include "common/port_range.h"
#include "nezha/interfaces.h"
#include "transport/endpoint.h"
#include "transport/interface_device.h"

namespace nezha {

// kind:interface?key=value&key=value, such as tcp:eth1?rail=blue&family=6.
struct RailUri {
  std::string kind;
  std::string interface;
  std::map<std::string, std::string> options;

  static absl::StatusOr<RailUri> parse(absl::string_view text);
};

// Returns the error that says `why` the URI is no rail.
absl::Status bad_rail(absl::string_view uri, absl::string_view why);
// Returns OK if a rail may have that name.
absl::Status check_rail_name(absl::string_view uri, const std::string& name);

struct RailKind {
  absl::string_view name;
  // Returns what opens the device that the URI `text` names; `uri` is `text` in parts. An option
  // that the kind does not know is an error that names those it knows. A device whose URI names no
  // cores gets a thread of its own on `cpus`; if there are none, it may start one when that is
  // needed. The device listens at one of `ports`.
  absl::StatusOr<Endpoint::DeviceFactory> (*make)(absl::string_view text, const RailUri& uri,
                                                  const Cpus& cpus, const PortRange& ports);
  // The cores near the device that the URI names; empty if they are not known.
  Cpus (*near)(const RailUri& uri);
  // The network interface by which a rail's connections are made, and the rail's name. Blocks.
  // kInvalidArgument: the URI makes no sense; any other error: the device cannot be used.
  absl::StatusOr<InterfaceOptions> (*way)(absl::string_view text, const RailUri& uri);
  // The devices that the machine has, usable or not. kNotFound: it has none, and what to do. Null:
  // the devices are named after network interfaces.
  absl::StatusOr<std::vector<RailDevice>> (*list)() = nullptr;
};

}  // namespace nezha
