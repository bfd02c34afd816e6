// SPDX-License-Identifier: Apache-2.0
// The registry of rail kinds, and what the rails of a list stand for.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/cores.h"
#include "common/cpus.h"
#include "common/port_range.h"
#include "flare_offload/engine/flare_engine.h"
#include "nezha/interfaces.h"
#include "transport/endpoint.h"
#include "transport/rail_kind.h"
#include "transport/tcp/device.h"

namespace nezha {

// A rail flare:INTERFACE@ADDRESS:PORT, which is no device but an engine: its manager is at that
// address. Options: rail=NAME, address=ADDRESS, window=BLOCKS, streams=NUMBER, reproducible=1,
// stagger=BLOCKS.
constexpr const char* kSwitchRail = "flare";  // its name among the rails
bool is_switch_rail(absl::string_view text);
absl::StatusOr<flare::FlareOptions> switch_rail(absl::string_view text);

// Returns the devices of a kind that the machine has, usable or not. kNotFound: it has none, and
// what to do.
using DeviceLister =
    absl::FunctionRef<absl::StatusOr<std::vector<RailDevice>>(absl::string_view kind)>;
absl::StatusOr<std::vector<RailDevice>> devices_of(absl::string_view kind);
// Whether devices of the kind can be listed. The others are named after network interfaces.
bool has_list(absl::string_view kind);

// The rails, with the devices that can be used in the place of each KIND:auto of a kind that has a
// list. It is an error if a kind has no device.
absl::StatusOr<std::vector<std::string>> expand_rails(const std::vector<std::string>& uris,
                                                      DeviceLister list = devices_of);

// What opens the device that the URI `text` names. Unknown kinds and options are errors that name
// the known ones. A device that names no cores gets a thread of its own on `cpus`. Without any,
// a kind may start one when it is needed. It listens at one of `ports`.
absl::StatusOr<Endpoint::DeviceFactory> device_factory(absl::string_view text,
                                                       const Cpus& cpus = {},
                                                       const PortRange& ports = {});

// Opens the devices that the URIs name, which are all different and name no switch. `ports`: as
// PortRange parses them. Errors name the rail. Takes Progress's lock.
absl::StatusOr<std::vector<Rail>> open_devices(Endpoint& endpoint,
                                               const std::vector<std::string>& uris,
                                               absl::string_view ports);

// How the ranks reach each other to make a rail's connections.
struct RailWay {
  std::string kind;              // of the rail
  InterfaceOptions connections;  // of which `trouble` leaves the rail's name alone
  absl::Status trouble;          // why the rail's device cannot be used; OK: it can
};
// An error if the URI `text` makes no sense. Blocks.
absl::StatusOr<RailWay> way_of_rail(absl::string_view text);

// Waits until each rail's interface has an address that can be used, or none that soon could be:
// the kernel takes a second or two to find out whether another host has a new IPv6 address. Blocks.
void await_addresses(const std::vector<std::string>& uris, Nanos deadline);

struct RailThreads {
  int given = 0;  // to rails that name cores, or to all by NEZHA_RAIL_THREADS
  int spare = 0;  // that other rails may start when they need them
};
// Of these devices, in a process with such a share of the cores.
RailThreads threads_of(const std::vector<std::string>& uris, const CoreShare& share);

// The cores to give to each of these devices, which name none. Empty ones unless
// NEZHA_RAIL_THREADS says that each is to have a thread.
std::vector<Cpus> cores_for(const std::vector<std::string>& uris);

}  // namespace nezha
