// SPDX-License-Identifier: Apache-2.0
// Decides in which order pairs of ranks measure, so that each host is in one pair at a time.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace nezha::check {

using Pair = std::pair<int, int>;  // two ranks, the lower one first
using Round = std::vector<Pair>;   // pairs that measure at the same time

// Returns the rounds in which every pair of hosts measures once; hosts[rank] identifies the rank's
// host. The lowest rank of each host measures for all ranks of the host, which have its interfaces
// in common. No host is twice in a round, and there are as few rounds as there can be.
std::vector<Round> schedule(const std::vector<std::string>& hosts);

}  // namespace nezha::check
