#include "check/pair_rounds.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "check/frames.h"
#include "check/pairing.h"
#include "check/reach.h"
#include "check/speed.h"

namespace nezha::check {
namespace {

std::vector<std::string> hosts_of(const std::vector<RankFacts>& ranks) {
  std::vector<std::string> hosts;
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

std::vector<Path> measure_pair(const Rounds& rounds, int peer) {
  const std::vector<RankFacts>& ranks = rounds.evidence.ranks;
  const RankFacts& here = ranks[static_cast<size_t>(rounds.rank)];
  const RankFacts& there = ranks[static_cast<size_t>(peer)];
  std::vector<Path> paths;
  for (const Link& link : common_links(here, there)) {
    if (!has_reached(rounds.evidence, rounds.rank, peer, link)) continue;
    const Target target = target_of(rounds.rails, rounds.rank, rounds.token, ranks, peer, link);
    const int mtu = std::min(here.rails[static_cast<size_t>(link.rail)].mtu,
                             there.rails[static_cast<size_t>(link.peer_rail)].mtu);
    Path path;
    path.from = rounds.rank;
    path.to = peer;
    path.rail = link.rail;
    path.to_rail = link.peer_rail;
    const FrameSizes sizes = measure_frames(target, mtu);
    path.frame_there = sizes.there;
    path.frame_back = sizes.back;
    // A burst would stand still.
    if (sizes.there >= mtu && sizes.back >= mtu) measure_speed(target, path);
    paths.push_back(std::move(path));
  }
  return paths;
}

}  // namespace

void measure_pairs(const Rounds& rounds, bench::Meeting& meeting,
                   std::chrono::milliseconds timeout) {
  const std::vector<std::string> hosts = hosts_of(rounds.evidence.ranks);
  const auto host = [&](int rank) { return hosts[static_cast<size_t>(rank)]; };
  const auto most = patience(rounds.evidence.ranks, timeout);
  const auto await = [&](const Pair& pair) { meeting.read(topic(pair), pair.first, most); };
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
        meeting.publish(topic(pair), encode(measure_pair(rounds, pair.second)));
      } else if (is_here) {
        await(pair);
      }
    }
    for (const Pair& pair : all[round]) latest[host(pair.first)] = latest[host(pair.second)] = pair;
  }
}

std::vector<Path> gather_paths(const std::vector<RankFacts>& ranks, bench::Meeting& meeting,
                               std::chrono::milliseconds timeout) {
  std::vector<Path> paths;
  for (const Round& round : schedule(hosts_of(ranks))) {
    for (const Pair& pair : round) {
      const std::string text = meeting.read(topic(pair), pair.first, patience(ranks, timeout));
      const std::vector<Path> theirs = decode_paths(text, ranks);
      paths.insert(paths.end(), theirs.begin(), theirs.end());
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
