// SPDX-License-Identifier: Apache-2.0
// Rails of several connections: one connection is one core's work at each end, and a core moves
// some 25 Gbit/s.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace nezha {

// The most connections of a rail to each peer.
constexpr int kMostStreams = 8;

// The rails, with K of one connection each in the place of tcp:INTERFACE?streams=K. They go over
// one interface, and the second is called as the rail and +2. What happens to one of them leaves
// the others alone.
absl::StatusOr<std::vector<std::string>> expand_streams(const std::vector<std::string>& uris);

}  // namespace nezha
