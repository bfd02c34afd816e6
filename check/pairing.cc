// SPDX-License-Identifier: Apache-2.0
#include "check/pairing.h"

#include <algorithm>

#include "rails/nic_selector.h"

namespace nezha::check {
namespace {

ChosenInterfaces chosen(const RankFacts& facts) {
  ChosenInterfaces interfaces;
  for (const RailEnd& end : facts.rails) {
    interfaces[end.rail] = end.is_found ? end.interface : "";
  }
  return interfaces;
}

int place_of(const RankFacts& facts, const std::string& rail) {
  int place = 0;
  while (facts.rails[static_cast<size_t>(place)].rail != rail) ++place;
  return place;
}

}  // namespace

std::vector<Link> common_links(const RankFacts& here, const RankFacts& there) {
  std::vector<Link> links;
  for (const auto& [rail, peer_rail] : pair_rails(chosen(here), chosen(there))) {
    const Link link{place_of(here, rail), place_of(there, peer_rail)};
    const bool can_be_tested = here.rails[static_cast<size_t>(link.rail)].error.empty() &&
                               there.rails[static_cast<size_t>(link.peer_rail)].error.empty();
    if (can_be_tested) links.push_back(link);
  }
  return links;
}

size_t most_rails(const std::vector<RankFacts>& ranks) {
  size_t rails = 0;
  for (const RankFacts& facts : ranks) rails = std::max(rails, facts.rails.size());
  return rails;
}

std::string label(const RailEnd& here, const RailEnd& there) {
  return here.rail == there.rail ? here.rail : here.interface;
}

}  // namespace nezha::check
