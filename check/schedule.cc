// SPDX-License-Identifier: Apache-2.0
#include "check/schedule.h"

#include <algorithm>
#include <set>

namespace nezha::check {
namespace {

// All pairs, in the order of the circle method for tournaments: the ranks but the first one move
// along a circle, and those that are opposite each other meet.
std::vector<Pair> pairs_by_circle(int ranks) {
  const int places = ranks + ranks % 2;  // whoever meets a place without a rank rests
  std::vector<Pair> pairs;
  for (int turn = 0; turn + 1 < places; ++turn) {
    const auto at = [&](int place) {
      return place == 0 ? 0 : 1 + (place - 1 + turn) % (places - 1);
    };
    for (int place = 0; place < places / 2; ++place) {
      const auto [low, high] = std::minmax({at(place), at(places - 1 - place)});
      if (high < ranks) pairs.emplace_back(low, high);
    }
  }
  return pairs;
}

}  // namespace

std::vector<Round> schedule(const std::vector<std::string>& hosts) {
  std::vector<Round> rounds;
  std::vector<std::set<std::string>> busy;  // by round
  for (const Pair& pair : pairs_by_circle(static_cast<int>(hosts.size()))) {
    const std::string& one = hosts[static_cast<size_t>(pair.first)];
    const std::string& other = hosts[static_cast<size_t>(pair.second)];
    if (one == other) continue;
    size_t round = 0;
    while (round < rounds.size() && (busy[round].contains(one) || busy[round].contains(other))) {
      ++round;
    }
    if (round == rounds.size()) {
      rounds.emplace_back();
      busy.emplace_back();
    }
    rounds[round].push_back(pair);
    busy[round].insert({one, other});
  }
  return rounds;
}

}  // namespace nezha::check
