// SPDX-License-Identifier: Apache-2.0
// Finds out whether this rank reaches its peers, on each rail that they have in common.
#pragma once

#include <vector>

#include "check/connection.h"
#include "check/measurement.h"
#include "check/own_rails.h"
#include "check/pairing.h"

namespace nezha::check {

// Returns the target by which this rank connects to a peer on one rail.
Target target_of(const std::vector<OwnRail>& rails, int rank, const UniqueId& token,
                 const std::vector<RankFacts>& ranks, int peer, const Link& link);

// Tries all peers and rails, 128 at a time, so that those that do not answer are waited for
// together.
std::vector<Reach> reach_all(const std::vector<OwnRail>& rails, int rank, const UniqueId& token,
                             const std::vector<RankFacts>& ranks);

// The wait for a peer that does not answer. The kernel asks for a neighbour for three seconds.
constexpr Nanos kReachPatience = 4 * kSecond;
// Returns the longest time that reach_all() takes on any of the ranks.
Nanos most_reach_time(const std::vector<RankFacts>& ranks);

}  // namespace nezha::check
