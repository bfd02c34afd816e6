// SPDX-License-Identifier: Apache-2.0
// Finds which rails two ranks have in common.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "check/measurement.h"

namespace nezha::check {

// A rail between two ranks: the places among the rails of each.
struct Link {
  int rail = 0;
  int peer_rail = 0;
};

// Returns the rails that the library would use between the two ranks, as far as both ends can be
// tested.
std::vector<Link> common_links(const RankFacts& here, const RankFacts& there);

// Returns the number of rails of the rank that has most.
size_t most_rails(const std::vector<RankFacts>& ranks);

// Returns the name of the rail that these ends have in common: its own, or, if auto has paired
// rails of different names, the interface's.
std::string label(const RailEnd& here, const RailEnd& there);

}  // namespace nezha::check
