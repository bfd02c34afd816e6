// SPDX-License-Identifier: Apache-2.0
// A manager's view of its fabric: the switches, the hosts, and what is linked to what.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "flare_offload/udp/udp_port.h"

namespace nezha::flare {

// Explains the format to users.
constexpr absl::string_view kFabricFormat =
    R"(Lines, each a word and its values; # begins a comment:

  switch leaf1 10.0.0.5:7100 10.0.0.5:7101   its name, where it receives frames (its --listen), and
                                             its --control
  host 10.0.0.1 leaf1                        a host's address on this fabric, and a switch that it
                                             is linked to; a host may have several such lines
  link leaf1 spine1                          two switches that are linked
  multicast 239.192.0.0:7200 256             that many multicast addresses from that one on, and the
                                             port: if an address is left for the session, a switch
                                             sends each result once to all hosts that are its
                                             children. Without this line it sends each result to
                                             each host. A job whose hosts do not receive multicast
                                             goes on without multicast
)";

struct FabricSwitch {
  std::string name;
  Address data = {};
  Address control = {};
  std::vector<int> neighbours = {};  // the switches' numbers
};

struct FabricHost {
  std::string address;        // the address as text, without a port
  std::vector<int> switches;  // the numbers of those that it is linked to
};

// Consecutive multicast addresses.
struct GroupRange {
  Address first;
  uint32_t count = 0;
};

struct Fabric {
  std::vector<FabricSwitch> switches;
  std::vector<FabricHost> hosts;
  std::optional<GroupRange> groups = {};

  // Returns the host with that address, whose port does not matter, or null if there is none.
  const FabricHost* host(const Address& address) const;
};

// An error names the line and what is wrong with it.
absl::StatusOr<Fabric> parse_fabric(absl::string_view text);

}  // namespace nezha::flare
