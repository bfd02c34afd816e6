// SPDX-License-Identifier: Apache-2.0
#include "check/diagnose_connects.h"

#include <array>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "check/diagnose_ends.h"
#include "check/reach.h"

namespace nezha::check {
namespace {

constexpr int kStrict = 1;  // the value of rp_filter
constexpr char kOpenPorts[] =
    "Open the TCP ports of the job in the firewall; --ports or NEZHA_PORTS gives them a range.";

// Holds the ways of one rail, and for each outcome the ways whose connections ended so.
struct RailWays {
  std::vector<Way> all;
  std::map<Outcome, std::vector<Way>> by_outcome;
};
using Details = std::map<std::pair<int, int>, std::string>;  // indexed by ranks, for one rail

std::map<std::string, RailWays> ways_by_rail(const Evidence& evidence, const Words& words,
                                             std::map<std::string, Details>& details) {
  std::map<std::string, RailWays> rails;
  for (int rank = 0; rank < static_cast<int>(evidence.reaches.size()); ++rank) {
    for (const Reach& reach : evidence.reaches[static_cast<size_t>(rank)]) {
      const Way way{rank, reach.peer, reach.rail, reach.peer_rail};
      const std::string rail = words.rail(way);
      if (is_hopeless(words, way)) continue;
      rails[rail].all.push_back(way);
      rails[rail].by_outcome[reach.outcome].push_back(way);
      details[rail][{rank, reach.peer}] = reach.detail;
    }
  }
  return rails;
}

// ---- What may be behind it ---------------------------------------------------------------------

// Returns the address that the ways lead to, or words for several addresses.
std::string address_of(const Words& words, const Group& group) {
  const RailEnd& end = words.to(group.ways.front());
  return receivers(group.ways).size() == 1 ? absl::StrCat(end.address, " port ", end.port)
                                           : "the peers' addresses";
}

// Returns a command that shows the fault, and the host to run it on.
std::string ping(const Words& words, const Group& group) {
  Way way = group.ways.front();
  for (const Way& each : group.ways) {
    if (group.kind == Group::Kind::kRank && each.to == group.rank) way = each;
  }
  return absl::StrCat("`ping -I ", words.from(way).interface, " ", words.to(way).address, "` on ",
                      words.host(way.from));
}

std::string different_subnets(const Words& words, const Group& group) {
  for (const Way& way : group.ways) {
    const std::string& from = words.from(way).subnet;
    const std::string& to = words.to(way).subnet;
    if (from.empty() || to.empty() || from == to) continue;
    const std::string fitting = words.rail_on(way.to, from);
    const std::string fits = absl::StrCat(" The rail ", fitting, " of ", words.rank(way.to),
                                          " is on the first of these subnets.");
    return absl::StrCat(" The addresses are on different subnets, ", from, " on ",
                        words.rank(way.from), " and ", to, " on ", words.rank(way.to), ".",
                        fitting.empty() ? "" : fits,
                        " Give the name to interfaces of one network (tcp:INTERFACE?rail=NAME), or",
                        " see that routers join the subnets.");
  }
  return "";
}

// Returns the rank and the place of the rail for either end.
std::array<std::pair<int, int>, 2> ends_of(const Way& way) {
  return {std::pair(way.from, way.rail), std::pair(way.to, way.to_rail)};
}

std::string strict_filters(const Words& words, const Group& group) {
  std::set<std::string> hosts;
  std::string example;
  for (const Way& way : group.ways) {
    for (const auto& [rank, rail] : ends_of(way)) {
      const RailEnd& end = words.end(rank, rail);
      if (!end.is_ipv4() || end.rp_filter != kStrict || end.sibling.empty()) continue;
      hosts.insert(words.host(rank));
      example = absl::StrCat(end.interface, " and ", end.sibling);
    }
  }
  if (hosts.empty()) return "";
  return absl::StrCat(
      " A likely cause: ", listed({hosts.begin(), hosts.end()}),
      hosts.size() == 1 ? " filters" : " filter", " by strict reverse path (rp_filter is 1) and ",
      hosts.size() == 1 ? "has" : "have", " two interfaces on one subnet (", example,
      "), so that packets are dropped that come by the one of them that the routes ",
      "do not name. Run `sysctl net.ipv4.conf.all.rp_filter=2` there.");
}

std::string answers_for_others(const Words& words, const Group& group) {
  for (const Way& way : group.ways) {
    for (const auto& [rank, rail] : ends_of(way)) {
      const RailEnd& end = words.end(rank, rail);
      if (!answers_at_either(end)) continue;
      return absl::StrCat(" A likely cause: ", words.host(rank),
                          " has two interfaces on one subnet (", end.interface, " and ",
                          end.sibling, "), and answers for either address",
                          " at either of them (arp_ignore is 0). Run ", kOneSubnet, " there.");
    }
  }
  return "";
}

std::string causes(const Words& words, const Group& group) {
  return absl::StrCat(different_subnets(words, group), strict_filters(words, group),
                      answers_for_others(words, group));
}

// ---- The outcomes ------------------------------------------------------------------------------

std::string refused(const Words& words, const Group& group) {
  return absl::StrCat("connections to ", address_of(words, group),
                      " are refused, though nezha-check listens", " there. A firewall of ",
                      words.hosts(receivers(group.ways)), " rejects them, or the",
                      " address leads to another host. ", kOpenPorts, causes(words, group));
}

std::string silent(const Words& words, const Group& group) {
  const std::string what =
      absl::StrCat("nothing came back from ", address_of(words, group), " within ",
                   kReachPatience / kSecond, " s: packets are dropped on the way.");
  if (words.connect_back(group)) {
    return absl::StrCat(what, " Connections the other way work, so that a firewall of ",
                        words.hosts(receivers(group.ways)), ", or one in between, drops",
                        " connections to this port. ", kOpenPorts, causes(words, group));
  }
  return absl::StrCat(what, " Look for a firewall that drops them, on ", words.suspects(group),
                      " or in between, and try ", ping(words, group), ". If that works, the",
                      " firewall drops TCP connections. ", kOpenPorts, causes(words, group));
}

std::string no_neighbour(const Words& words, const Group& group) {
  return absl::StrCat(
      "no host answers for ", address_of(words, group), " (ARP or neighbour discovery). Look at",
      " the cables, the switch's ports and the VLANs of ", words.from(group.ways.front()).interface,
      " on ", words.suspects(group), ".", causes(words, group));
}

std::string no_route(const Words& words, const Group& group, const std::string& detail) {
  const std::string firewall = absl::StrCat(" A firewall of ", words.hosts(receivers(group.ways)),
                                            " may reject connections in this manner. ", kOpenPorts);
  return absl::StrCat("there is no route to ", address_of(words, group), " (", detail, ").",
                      absl::StrContains(detail, "unreachable") ? "" : firewall,
                      words.connect_back(group) ? "" : " Look at the routes (`ip route get`).",
                      causes(words, group));
}

std::string stranger(const Words& words, const Group& group) {
  return absl::StrCat("something else answers at ", address_of(words, group), ". The address leads",
                      " to another host, or two hosts have it: name an interface of a network that",
                      " the hosts share.");
}

std::string wrong_interface(const Words& words, const Group& group, const std::string& detail) {
  const RailEnd& end = words.to(group.ways.front());
  const std::string hosts = words.hosts(receivers(group.ways));
  return absl::StrCat(
      "connections to the address of ", end.interface, " arrive at the interface ", detail, " of ",
      hosts, ", which has two interfaces on one subnet (ARP flux). nezha accepts no connection",
      " there, so the rail would carry nothing. Run ", kOneSubnet, " on ", hosts,
      ", and `ip neigh flush all` on the other hosts.");
}

Finding tell(const Words& words, Outcome outcome, const Group& group, const std::string& detail) {
  switch (outcome) {
    case Outcome::kRefused:
      return words.finding("refused", group, refused(words, group));
    case Outcome::kSilent:
      return words.finding("silent", group, silent(words, group));
    case Outcome::kNoNeighbour:
      return words.finding("no-neighbour", group, no_neighbour(words, group));
    case Outcome::kNoRoute:
      return words.finding("no-route", group, no_route(words, group, detail));
    case Outcome::kStranger:
      return words.finding("stranger", group, stranger(words, group));
    case Outcome::kWrongInterface:
      return words.finding("wrong-interface", group, wrong_interface(words, group, detail));
    case Outcome::kConnected:
    case Outcome::kFailed:
      break;
  }
  return words.finding("failed", group,
                       absl::StrCat("connecting to ", address_of(words, group), " failed: ", detail,
                                    ".", causes(words, group)));
}

}  // namespace

std::vector<Finding> diagnose_connects(const Evidence& evidence) {
  const Words words(evidence);
  std::map<std::string, Details> details;
  std::vector<Finding> findings;
  for (const auto& [rail, ways] : ways_by_rail(evidence, words, details)) {
    for (const auto& [outcome, faulty] : ways.by_outcome) {
      if (outcome == Outcome::kConnected) continue;
      for (const Group& each :
           group(one_per_hosts(words, faulty), one_per_hosts(words, ways.all))) {
        const Way& way = each.ways.front();
        findings.push_back(tell(words, outcome, each, details[rail][{way.from, way.to}]));
        absl::StrAppend(&findings.back().text, " ", words.consequence(each));
      }
    }
  }
  return findings;
}

}  // namespace nezha::check
