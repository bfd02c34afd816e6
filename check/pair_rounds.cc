// SPDX-License-Identifier: Apache-2.0
#include "check/pair_rounds.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "check/frames.h"
#include "check/pairing.h"
#include "check/reach.h"
#include "check/speed.h"

namespace nezha::check {
namespace {

std::vector<std::string> hosts_of(const std::vector<RankFacts>& ranks) {
  std::vector<std::string> hosts;
  hosts.reserve(ranks.size());
  for (const RankFacts& facts : ranks) hosts.push_back(facts.namespace_id);
  return hosts;
}

std::string topic(const Pair& pair) { return absl::StrCat("pair-", pair.first, "-", pair.second); }

bool has_reached(const Evidence& evidence, int rank, int peer, const Link& link) {
  const auto& reaches = evidence.reaches[static_cast<size_t>(rank)];
  return std::any_of(reaches.begin(), reaches.end(), [&](const Reach& reach) {
    return reach.peer == peer && reach.rail == link.rail && reach.outcome == Outcome::kConnected;
  });
}

Path measure_link(const Rounds& rounds, int peer, const Link& link) {
  const std::vector<RankFacts>& ranks = rounds.evidence.ranks;
  const RailEnd& here =
      ranks[static_cast<size_t>(rounds.rank)].rails[static_cast<size_t>(link.rail)];
  const RailEnd& there =
      ranks[static_cast<size_t>(peer)].rails[static_cast<size_t>(link.peer_rail)];
  const Target target = target_of(rounds.rails, rounds.rank, rounds.token, ranks, peer, link);
  const int mtu = std::min(here.mtu, there.mtu);
  Path path;
  path.from = rounds.rank;
  path.to = peer;
  path.rail = link.rail;
  path.to_rail = link.peer_rail;
  const FrameSizes sizes = measure_frames(target, mtu);
  path.frame_there = sizes.there.largest;
  path.frame_back = sizes.back.largest;
  path.loses_there = sizes.there.loses;
  path.loses_back = sizes.back.loses;
  // A burst would stand still where its packets are lost.
  if (!path.loses_there && !path.loses_back) measure_speed(target, path);
  return path;
}

// Measures what this rank is to measure of its pair with the peer, and publishes the paths.
void measure_pair(const Rounds& rounds, const Pair& pair, bench::Meeting& meeting) {
  const int peer = pair.first == rounds.rank ? pair.second : pair.first;
  const std::vector<RankFacts>& ranks = rounds.evidence.ranks;
  std::vector<Path> paths;
  for (const Link& link :
       common_links(ranks[static_cast<size_t>(rounds.rank)], ranks[static_cast<size_t>(peer)])) {
    const bool has_turn = rounds.rank < peer || !has_reached(rounds.evidence, peer, rounds.rank,
                                                             {link.peer_rail, link.rail});
    if (!has_turn || !has_reached(rounds.evidence, rounds.rank, peer, link)) continue;
    paths.push_back(measure_link(rounds, peer, link));
  }
  meeting.publish(topic(pair), encode(paths));
}

// The same path as the lower rank sees it.
Path from_lower_rank(Path path) {
  if (path.from < path.to) return path;
  std::swap(path.from, path.to);
  std::swap(path.rail, path.to_rail);
  std::swap(path.frame_there, path.frame_back);
  std::swap(path.loses_there, path.loses_back);
  std::swap(path.gbps_there, path.gbps_back);
  return path;
}

}  // namespace

void measure_pairs(const Rounds& rounds, bench::Meeting& meeting,
                   std::chrono::milliseconds timeout) {
  const std::vector<std::string> hosts = hosts_of(rounds.evidence.ranks);
  const auto host = [&](int rank) { return hosts[static_cast<size_t>(rank)]; };
  const auto most = patience(rounds.evidence.ranks, timeout);
  const auto await = [&](const Pair& pair) {
    for (const int rank : {pair.first, pair.second}) meeting.read(topic(pair), rank, most);
  };
  const std::vector<Round> all = schedule(hosts);
  std::map<std::string, Pair> latest;  // that each host was in
  for (size_t round = 0; round < all.size(); ++round) {
    rounds.progress(round, all.size());
    for (const Pair& pair : all[round]) {
      const bool is_here =
          host(pair.first) == host(rounds.rank) || host(pair.second) == host(rounds.rank);
      if (pair.first == rounds.rank) {
        const auto busy = latest.find(host(pair.second));
        if (busy != latest.end()) await(busy->second);
        measure_pair(rounds, pair, meeting);
      } else if (pair.second == rounds.rank) {
        meeting.read(topic(pair), pair.first, most);
        measure_pair(rounds, pair, meeting);
      }
      if (is_here) await(pair);
    }
    for (const Pair& pair : all[round]) latest[host(pair.first)] = latest[host(pair.second)] = pair;
  }
}

std::vector<Path> gather_paths(const std::vector<RankFacts>& ranks, bench::Meeting& meeting,
                               std::chrono::milliseconds timeout) {
  const auto most = patience(ranks, timeout);
  std::vector<Path> paths;
  for (const Round& round : schedule(hosts_of(ranks))) {
    for (const Pair& pair : round) {
      for (const int rank : {pair.first, pair.second}) {
        for (Path& path : decode_paths(meeting.read(topic(pair), rank, most), ranks)) {
          paths.push_back(from_lower_rank(std::move(path)));
        }
      }
    }
  }
  return paths;
}

std::chrono::milliseconds patience(const std::vector<RankFacts>& ranks,
                                   std::chrono::milliseconds timeout) {
  size_t rails = 0;
  for (const RankFacts& facts : ranks) rails = std::max(rails, facts.rails.size());
  const auto turns = static_cast<int64_t>(rails * schedule(hosts_of(ranks)).size());
  const std::chrono::nanoseconds most(turns * (kMostFrameTime + kMostSpeedTime));
  return timeout + std::chrono::ceil<std::chrono::milliseconds>(most);
}

}  // namespace nezha::check
