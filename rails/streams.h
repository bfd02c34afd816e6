// SPDX-License-Identifier: Apache-2.0
// Rails of several connections. Each connection keeps one core busy at each end. A fast NIC gets
// several, because a core that also sums can serve one connection up to a certain rate only
// (kOfStream in streams.cc).
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace nezha {

// The maximum number of connections of a rail to each peer.
constexpr int kMostStreams = 8;

// Adds ?streams=K to each rail tcp:INTERFACE whose NIC is faster than one connection, unless the
// rail says how many it has or another rail has the same interface. `speed_of` returns an
// interface's rate in Mbit/s, or 0 if the rate is not known. All rails together get no more
// connections than there are `threads` to handle them side by side, but each gets at least one.
std::vector<std::string> choose_streams(const std::vector<std::string>& uris, int threads,
                                        absl::FunctionRef<int(const std::string&)> speed_of);

// Returns the rails, with K rails of one connection each in the place of tcp:INTERFACE?streams=K.
// They share one interface, and the second has the rail's name with +2 appended. They do not affect
// each other if one fails.
absl::StatusOr<std::vector<std::string>> expand_streams(const std::vector<std::string>& uris);

}  // namespace nezha
