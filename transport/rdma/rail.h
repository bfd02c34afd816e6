// SPDX-License-Identifier: Apache-2.0
// The kind of rail rdma:DEVICE, rdma:DEVICE:PORT. Options: rail=NAME, gid=INDEX, address=ADDRESS,
// via=INTERFACE, cpus=LIST.
#pragma once

#include "transport/rail_kind.h"

namespace nezha::rdma {

absl::StatusOr<Endpoint::DeviceFactory> make_rail(absl::string_view text, const RailUri& uri,
                                                  const Cpus& cpus, const PortRange& ports);
Cpus near_rail(const RailUri& uri);
absl::StatusOr<InterfaceOptions> way_of_rail(absl::string_view text, const RailUri& uri);
absl::StatusOr<std::vector<RailDevice>> list_rails();

constexpr RailKind kRail{"rdma", &make_rail, &near_rail, &way_of_rail, &list_rails};

}  // namespace nezha::rdma
