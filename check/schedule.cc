// SPDX-License-Identifier: Apache-2.0
#include "check/schedule.h"

#include <algorithm>
#include <set>

namespace nezha::check {
namespace {

// Returns the lowest rank of each host, in order.
std::vector<int> first_ranks(const std::vector<std::string>& hosts) {
  std::set<std::string> known;
  std::vector<int> ranks;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (known.insert(hosts[rank]).second) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace

// Uses the circle method for tournaments: the ranks but the first one move along a circle, and
// those that are opposite each other meet.
std::vector<Round> schedule(const std::vector<std::string>& hosts) {
  const std::vector<int> ranks = first_ranks(hosts);
  const int count = static_cast<int>(ranks.size());
  const int places = count + count % 2;  // whoever meets a place without a rank rests
  std::vector<Round> rounds;
  for (int turn = 0; count > 1 && turn + 1 < places; ++turn) {
    const auto at = [&](int place) {
      return place == 0 ? 0 : 1 + (place - 1 + turn) % (places - 1);
    };
    Round& round = rounds.emplace_back();
    for (int place = 0; place < places / 2; ++place) {
      const auto [low, high] = std::minmax({at(place), at(places - 1 - place)});
      if (high == count) continue;
      round.emplace_back(ranks[static_cast<size_t>(low)], ranks[static_cast<size_t>(high)]);
    }
  }
  return rounds;
}

}  // namespace nezha::check
