// SPDX-License-Identifier: Apache-2.0
// The registry of rail kinds, and functions that interpret a list of rails.
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

// A rail flare:INTERFACE@ADDRESS:PORT is not a device but an engine, whose manager is at that
// address. Options: rail=NAME, address=ADDRESS, window=BLOCKS, streams=NUMBER, reproducible=1,
// stagger=BLOCKS.
constexpr const char* kSwitchRail = "flare";  // its name among the rails
bool is_switch_rail(absl::string_view text);
absl::StatusOr<flare::FlareOptions> switch_rail(absl::string_view text);

// Returns the machine's devices of a kind, usable or not. If there are none, the error is kNotFound
// and says what to do.
using DeviceLister =
    absl::FunctionRef<absl::StatusOr<std::vector<RailDevice>>(absl::string_view kind)>;
absl::StatusOr<std::vector<RailDevice>> devices_of(absl::string_view kind);
// Returns whether devices of the kind can be listed. The others are named after network interfaces.
bool has_list(absl::string_view kind);

// Returns the rails with each KIND:auto replaced by the usable devices of that kind, if the kind
// has a list. Returns an error if such a kind has no usable device.
absl::StatusOr<std::vector<std::string>> expand_rails(const std::vector<std::string>& uris,
                                                      DeviceLister list = devices_of);

// Returns a function that opens the device that the URI `text` names. Unknown kinds and options are
// errors that name the known ones. A device whose URI names no cores gets a thread of its own on
// `cpus`; if `cpus` is empty, its kind may start one when it is needed. The device listens at one
// of `ports`.
absl::StatusOr<Endpoint::DeviceFactory> device_factory(absl::string_view text,
                                                       const Cpus& cpus = {},
                                                       const PortRange& ports = {});

// Opens the devices that the URIs name. The URIs must all be different and name no switch. `ports`
// is in the form that PortRange parses. Errors name the rail. Takes Progress's lock.
absl::StatusOr<std::vector<Rail>> open_devices(Endpoint& endpoint,
                                               const std::vector<std::string>& uris,
                                               absl::string_view ports);

// How the ranks reach each other to make a rail's connections.
struct RailWay {
  std::string kind;              // the rail's kind
  InterfaceOptions connections;  // if `trouble` is an error, only the rail's name is set
  absl::Status trouble;          // why the rail's device cannot be used; OK: it can
};
// Returns an error if the URI `text` is invalid. Blocks.
absl::StatusOr<RailWay> way_of_rail(absl::string_view text);

// Waits until each rail's interface has a usable address, or none that will be usable soon: the
// kernel takes a second or two to check whether another host has a new IPv6 address. Blocks.
void await_addresses(const std::vector<std::string>& uris, Nanos deadline);

struct RailThreads {
  int given = 0;  // threads of rails that name cores, or of all rails by NEZHA_RAIL_THREADS
  int spare = 0;  // threads that other rails may start when they need them
};
// Returns the threads for these rails in a process with that share of the cores.
RailThreads threads_of(const std::vector<std::string>& uris, const CoreShare& share);

// Returns for each device the cores to give it. They are empty for a device that names its own, and
// for all devices unless NEZHA_RAIL_THREADS says that each gets a thread.
std::vector<Cpus> cores_for(const std::vector<std::string>& uris);

}  // namespace nezha
