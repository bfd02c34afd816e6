// SPDX-License-Identifier: Apache-2.0
#include "check/pair_rounds.h"

#include <gloo/rendezvous/prefix_store.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "check/frames.h"
#include "check/links.h"
#include "check/pairing.h"
#include "check/reach.h"
#include "check/speed.h"

namespace nezha::check {
namespace {

std::string topic(const Pair& pair) { return absl::StrCat("pair-", pair.first, "-", pair.second); }
std::string links_topic(const Pair& pair) { return "links-" + topic(pair); }

const RailEnd& end_of(const std::vector<RankFacts>& ranks, int rank, int rail) {
  return ranks[static_cast<size_t>(rank)].rails[static_cast<size_t>(rail)];
}

bool goes_by_tcp(const std::vector<RankFacts>& ranks, const Pair& pair, const Link& link) {
  return end_of(ranks, pair.first, link.rail).kind == "tcp" &&
         end_of(ranks, pair.second, link.peer_rail).kind == "tcp";
}

// Returns the most rails of a rank that may be measured by the library's links.
ptrdiff_t most_library_rails(const std::vector<RankFacts>& ranks) {
  ptrdiff_t rails = 0;
  for (const RankFacts& facts : ranks) {
    const auto is_no_tcp = [](const RailEnd& rail) { return rail.kind != "tcp"; };
    rails = std::max(rails, std::count_if(facts.rails.begin(), facts.rails.end(), is_no_tcp));
  }
  return rails;
}

// Returns the pair's common links, as its first rank sees them, that both ranks measure by the
// library's own.
std::vector<Link> library_links(const Evidence& evidence, const Pair& pair) {
  const std::vector<RankFacts>& ranks = evidence.ranks;
  std::vector<Link> links;
  for (const Link& link : common_links(ranks[static_cast<size_t>(pair.first)],
                                       ranks[static_cast<size_t>(pair.second)])) {
    const bool is_reached = has_reached(evidence, pair.first, pair.second, link.rail);
    if (is_reached && !goes_by_tcp(ranks, pair, link)) links.push_back(link);
  }
  return links;
}

// The first rank enters the result into its path of that link.
void measure_library_links(const Rounds& rounds, const Pair& pair, bench::Meeting& meeting,
                           std::vector<Path>& paths) {
  const bool is_first = pair.first == rounds.rank;
  const std::vector<Link> links = library_links(rounds.evidence, pair);
  if (links.empty()) return;
  if (is_first) {
    meeting.publish(links_topic(pair), "");
  } else {
    meeting.read(links_topic(pair), pair.first, rounds.patience);
  }
  for (const Link& link : links) {
    const std::string prefix = absl::StrCat(links_topic(pair), "-", link.rail);
    rounds.stores.push_back(
        std::make_shared<::gloo::rendezvous::PrefixStore>(prefix, *meeting.store()));
    Path measured;
    const int rail = is_first ? link.rail : link.peer_rail;
    measure_links(rounds.stores.back(), rounds.rails[static_cast<size_t>(rail)].uri, rounds.ports,
                  is_first ? 0 : 1, kLinksPatience, measured);
    for (Path& path : paths) {
      // A path that loses its large packets is reported already.
      if (path.rail != link.rail || !path.error.empty() || path.loses_there || path.loses_back) {
        continue;
      }
      path.round_trip_us = measured.round_trip_us;
      path.gbps_there = measured.gbps_there;
      path.gbps_back = measured.gbps_back;
      path.error = measured.error;
    }
  }
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
  path.error = sizes.there.error.empty() ? sizes.back.error : sizes.there.error;
  const bool is_whole = path.error.empty() && !path.loses_there && !path.loses_back;
  // A burst would stand still where its packets are lost.
  if (is_whole && here.kind == "tcp" && there.kind == "tcp") measure_speed(target, path);
  return path;
}

// Measures what this rank is to measure of its pair with the peer, and publishes the paths.
void measure_pair(const Rounds& rounds, const Pair& pair, bench::Meeting& meeting) {
  const int peer = pair.first == rounds.rank ? pair.second : pair.first;
  const std::vector<RankFacts>& ranks = rounds.evidence.ranks;
  std::vector<Path> paths;
  for (const Link& link :
       common_links(ranks[static_cast<size_t>(rounds.rank)], ranks[static_cast<size_t>(peer)])) {
    const bool has_turn =
        rounds.rank < peer || !has_reached(rounds.evidence, peer, rounds.rank, link.peer_rail);
    if (!has_turn || !has_reached(rounds.evidence, rounds.rank, peer, link.rail)) continue;
    paths.push_back(measure_link(rounds, peer, link));
  }
  if (pair.first == rounds.rank) measure_library_links(rounds, pair, meeting, paths);
  meeting.publish(topic(pair), encode(paths));
}

// Returns the same path as the lower rank sees it.
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

std::vector<Round> schedule_of(const std::vector<RankFacts>& ranks) {
  std::vector<std::string> hosts;
  hosts.reserve(ranks.size());
  for (const RankFacts& facts : ranks) hosts.push_back(facts.namespace_id);
  return schedule(hosts);
}

void measure_pairs(const Rounds& rounds, bench::Meeting& meeting) {
  const auto host = [&](int rank) -> const std::string& {
    return rounds.evidence.ranks[static_cast<size_t>(rank)].namespace_id;
  };
  const auto await = [&](const Pair& pair) {
    for (const int rank : {pair.first, pair.second}) {
      meeting.read(topic(pair), rank, rounds.patience);
    }
  };
  std::map<int, Pair> latest;  // the latest pair that each rank was in
  for (size_t round = 0; round < rounds.schedule.size(); ++round) {
    rounds.progress(round, rounds.schedule.size());
    for (const Pair& pair : rounds.schedule[round]) {
      const bool is_here =
          host(pair.first) == host(rounds.rank) || host(pair.second) == host(rounds.rank);
      if (pair.first == rounds.rank) {
        const auto busy = latest.find(pair.second);
        if (busy != latest.end()) await(busy->second);
        measure_pair(rounds, pair, meeting);
      } else if (pair.second == rounds.rank) {
        std::vector<Path> none;
        measure_library_links(rounds, pair, meeting, none);
        meeting.read(topic(pair), pair.first, rounds.patience);
        measure_pair(rounds, pair, meeting);
      }
      // The other ranks of the host keep pace, so that no rank waits for all rounds at once.
      if (is_here) await(pair);
    }
    for (const Pair& pair : rounds.schedule[round]) latest[pair.first] = latest[pair.second] = pair;
  }
}

std::vector<Path> gather_paths(const Rounds& rounds, bench::Meeting& meeting) {
  std::vector<Path> paths;
  for (const Round& round : rounds.schedule) {
    for (const Pair& pair : round) {
      for (const int rank : {pair.first, pair.second}) {
        const std::string text = meeting.read(topic(pair), rank, rounds.patience);
        for (Path& path : decode_paths(text, rounds.evidence.ranks)) {
          paths.push_back(from_lower_rank(std::move(path)));
        }
      }
    }
  }
  return paths;
}

std::chrono::milliseconds patience(const std::vector<RankFacts>& ranks,
                                   std::chrono::milliseconds timeout) {
  const std::chrono::nanoseconds most(static_cast<Nanos>(most_rails(ranks)) *
                                      (kMostFrameTime + kMostSpeedTime));
  const auto by_library = static_cast<int>(most_library_rails(ranks));
  return timeout + std::chrono::ceil<std::chrono::milliseconds>(most) +
         by_library * 4 * kLinksPatience;
}

}  // namespace nezha::check
