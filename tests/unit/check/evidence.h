// SPDX-License-Identifier: Apache-2.0
// What the ranks of a healthy cluster measure; the tests then spoil it.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "check/measurement.h"
#include "check/pairing.h"

namespace nezha::check::testing {

// One rank per host (node0, node1, ...); the rails are eth0 (10.0.0.0/16), eth1 (10.1.0.0/16), ...
inline RailEnd end_of(int rank, int rail) {
  RailEnd end;
  end.rail = end.interface = absl::StrCat("eth", rail);
  end.address = absl::StrCat("10.", rail, ".0.", rank + 1);
  end.subnet = absl::StrCat("10.", rail, ".0.0/16");
  end.port = 20000;
  end.mtu = 1500;
  end.is_running = true;
  return end;
}

// Fills in good connections and paths for the common rails of all pairs.
inline void connect_all(Evidence& evidence) {
  const int size = static_cast<int>(evidence.ranks.size());
  evidence.reaches.assign(evidence.ranks.size(), {});
  evidence.paths.clear();
  for (int rank = 0; rank < size; ++rank) {
    for (int peer = 0; peer < size; ++peer) {
      if (rank == peer) continue;
      for (const Link& link : common_links(evidence.ranks[static_cast<size_t>(rank)],
                                           evidence.ranks[static_cast<size_t>(peer)])) {
        evidence.reaches[static_cast<size_t>(rank)].push_back(
            {peer, link.rail, link.peer_rail, Outcome::kConnected, ""});
        if (rank > peer) continue;
        evidence.paths.push_back(
            {rank, peer, link.rail, link.peer_rail, 1500, 1500, false, false, 100, 9.4, 9.4, ""});
      }
    }
  }
}

inline Evidence all_is_well(int ranks, int rails) {
  Evidence evidence;
  for (int rank = 0; rank < ranks; ++rank) {
    RankFacts facts{ranks, absl::StrCat("node", rank), absl::StrCat("kernel", rank), {}};
    for (int rail = 0; rail < rails; ++rail) facts.rails.push_back(end_of(rank, rail));
    evidence.ranks.push_back(facts);
  }
  connect_all(evidence);
  return evidence;
}

inline RailEnd& end(Evidence& evidence, int rank, int rail) {
  return evidence.ranks.at(static_cast<size_t>(rank)).rails.at(static_cast<size_t>(rail));
}

// The rank's attempt to connect to the peer by the rail.
inline Reach& reach(Evidence& evidence, int rank, int peer, int rail) {
  for (Reach& each : evidence.reaches.at(static_cast<size_t>(rank))) {
    if (each.peer == peer && each.rail == rail) return each;
  }
  throw std::logic_error("no such attempt");
}

// What the lower rank has measured.
inline Path& path(Evidence& evidence, int from, int to, int rail) {
  for (Path& each : evidence.paths) {
    if (each.from == from && each.to == to && each.rail == rail) return each;
  }
  throw std::logic_error("no such path");
}

// Makes the path lose packets that are larger than `there` and `back`.
inline void lose(Evidence& evidence, int from, int to, int rail, int there, int back) {
  Path& it = path(evidence, from, to, rail);
  it.frame_there = there;
  it.frame_back = back;
  it.loses_there = there < 1500;
  it.loses_back = back < 1500;
}

// Makes the rank's attempt fail; nothing is measured after that.
inline void fail(Evidence& evidence, int rank, int peer, int rail, Outcome outcome,
                 const std::string& detail = "") {
  Reach& failed = reach(evidence, rank, peer, rail);
  failed.outcome = outcome;
  failed.detail = detail;
  std::erase_if(evidence.paths, [&](const Path& each) {
    return each.from == rank && each.to == peer && each.rail == rail;
  });
}

}  // namespace nezha::check::testing
