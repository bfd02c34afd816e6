// SPDX-License-Identifier: Apache-2.0
#include "check/reach.h"

#include <net/if.h>

#include <algorithm>
#include <cstddef>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "check/parallel.h"

namespace nezha::check {
namespace {

// Each attempt has a thread and a descriptor.
constexpr std::ptrdiff_t kAtOnce = 128;

Reach try_to_reach(const Target& target, int peer, const Link& link) {
  Reach reach{peer, link.rail, link.peer_rail, Outcome::kFailed, ""};
  if (target.to.family() != target.from.family()) {
    reach.outcome = Outcome::kNoRoute;
    reach.detail = "one address is of IPv4 and the other of IPv6";
    return reach;
  }
  Attempt attempt = connect_to(target, Service::kGreet, 0, now() + kReachPatience);
  reach.outcome = attempt.outcome;
  reach.detail = std::move(attempt.detail);
  return reach;
}

}  // namespace

Target target_of(const std::vector<OwnRail>& rails, int rank, const UniqueId& token,
                 const std::vector<RankFacts>& ranks, int peer, const Link& link) {
  const OwnRail& own = rails[static_cast<size_t>(link.rail)];
  const RailEnd& there =
      ranks[static_cast<size_t>(peer)].rails[static_cast<size_t>(link.peer_rail)];
  Target target;
  target.token = token;
  target.rank = rank;
  target.peer = peer;
  target.peer_rail = link.peer_rail;
  target.interface = own.end.interface;
  target.from = own.address;
  target.to = net::Address::parse_host(there.address).value_or(net::Address());
  if (target.to.is_link_local()) target.to.set_scope(if_nametoindex(target.interface.c_str()));
  if (target.to.family() != AF_UNSPEC) target.to.set_port(there.port);
  target.peer_interface = there.interface;
  return target;
}

std::vector<Reach> reach_all(const std::vector<OwnRail>& rails, int rank, const UniqueId& token,
                             const std::vector<RankFacts>& ranks) {
  struct Try {
    Target target;
    Link link;
  };
  std::vector<Try> tries;
  for (int peer = 0; peer < static_cast<int>(ranks.size()); ++peer) {
    if (peer == rank) continue;
    const RankFacts& here = ranks[static_cast<size_t>(rank)];
    for (const Link& link : common_links(here, ranks[static_cast<size_t>(peer)])) {
      tries.push_back({target_of(rails, rank, token, ranks, peer, link), link});
    }
  }
  std::vector<Reach> reaches(tries.size());
  std::vector<std::function<void()>> tasks;
  for (size_t i = 0; i < tries.size(); ++i) {
    tasks.emplace_back([&, i] {
      reaches[i] = try_to_reach(tries[i].target, tries[i].target.peer, tries[i].link);
    });
  }
  for (auto first = tasks.begin(); first != tasks.end();) {
    const auto count = std::min<std::ptrdiff_t>(tasks.end() - first, kAtOnce);
    run_all({first, first + count});
    first += count;
  }
  return reaches;
}

Nanos most_reach_time(const std::vector<RankFacts>& ranks) {
  const auto tries = static_cast<Nanos>(ranks.size() * most_rails(ranks));
  return (tries + kAtOnce - 1) / kAtOnce * kReachPatience;
}

}  // namespace nezha::check
