// SPDX-License-Identifier: Apache-2.0
// Rails of several connections. One connection is one core's work at each end, and a core moves
// some 12 Gbit/s through it in both directions while it sums (docs/performance.md).
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace nezha {

// The most connections of a rail to each peer.
constexpr int kMostStreams = 8;

// Gives ?streams=K to each rail tcp:INTERFACE whose NIC is faster than one connection, if the rail
// does not say how many it has, and no other rail has its interface. `speed_of` returns an
// interface's rate in Mbit/s, or 0 if the rate is not known. All rails together get no more
// connections than there are `threads` to handle them side by side, but one each.
std::vector<std::string> choose_streams(const std::vector<std::string>& uris, int threads,
                                        absl::FunctionRef<int(const std::string&)> speed_of);

// The rails, with K of one connection each in the place of tcp:INTERFACE?streams=K. They go over
// one interface, and the second is called as the rail and +2. What happens to one of them leaves
// the others alone.
absl::StatusOr<std::vector<std::string>> expand_streams(const std::vector<std::string>& uris);

}  // namespace nezha
