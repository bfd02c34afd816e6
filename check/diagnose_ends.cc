// SPDX-License-Identifier: Apache-2.0
#include "check/diagnose_ends.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "check/pairing.h"

namespace nezha::check {
namespace {

int count(const std::vector<RankFacts>& ranks) { return static_cast<int>(ranks.size()); }

const RankFacts& at(const Evidence& evidence, int rank) {
  return evidence.ranks[static_cast<size_t>(rank)];
}

// ---- Ends that cannot be used ------------------------------------------------------------------

// Ends with one error, such as a name that was mistyped for all hosts, are one finding.
void add_unusable(const Evidence& evidence, const Words& words, std::vector<Finding>& findings) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> ranks_with;  // rail and error
  for (int rank = 0; rank < count(evidence.ranks); ++rank) {
    for (const RailEnd& end : at(evidence, rank).rails) {
      if (!end.error.empty()) ranks_with[{end.rail, end.error}].push_back(rank);
    }
  }
  for (const auto& [fault, ranks] : ranks_with) {
    const auto& [rail, error] = fault;
    const bool is_one = ranks.size() == 1;
    findings.push_back({"unusable",
                        rail,
                        ranks,
                        {},
                        absl::StrCat("Rail ", rail, ", ", words.ranks(ranks),
                                     ": it cannot be used: ", error, ". Correct --rails on ",
                                     is_one ? "this host, or the interface."
                                            : "these hosts, or the interfaces.")});
  }
}

void add_down(const Evidence& evidence, const Words& words, std::vector<Finding>& findings) {
  for (int rank = 0; rank < count(evidence.ranks); ++rank) {
    for (const RailEnd& end : at(evidence, rank).rails) {
      if (!end.error.empty() || end.is_running) continue;
      findings.push_back(
          {"down",
           end.rail,
           {rank},
           {},
           absl::StrCat("Rail ", end.rail, ", ", words.rank(rank), ": the interface ",
                        end.interface, " is down or has no carrier. Look at its cable and at ",
                        "the switch's port, or run `ip link set ", end.interface, " up`.")});
    }
  }
}

// ---- Addresses that lead nowhere else ----------------------------------------------------------

// Adds findings for ends of a rail, on different hosts, that are loopback or have one address.
void add_own_addresses(const Evidence& evidence, const Words& words,
                       std::vector<Finding>& findings) {
  std::map<std::string, std::map<std::string, std::vector<int>>> ranks_at;  // keys: rail, address
  for (int rank = 0; rank < count(evidence.ranks); ++rank) {
    for (const RailEnd& end : at(evidence, rank).rails) {
      if (end.error.empty()) ranks_at[end.rail][end.address].push_back(rank);
    }
  }
  for (const auto& [rail, addresses] : ranks_at) {
    for (const auto& [address, ranks] : addresses) {
      const auto is_elsewhere = [&, first = ranks.front()](int rank) {
        return !words.on_one_host(first, rank);
      };
      if (std::none_of(ranks.begin(), ranks.end(), is_elsewhere)) continue;
      findings.push_back(
          {"own-address",
           rail,
           ranks,
           {},
           absl::StrCat("Rail ", rail, ", ", words.ranks(ranks), ": their hosts have one address, ",
                        address, ". An interface such as lo or docker0 is each host's own and ",
                        "leads to no other host, and two hosts of a network must not have one ",
                        "address. Name an interface of a network that the hosts share.")});
    }
  }
}

// ---- Names -------------------------------------------------------------------------------------

// Returns the rail of `rank` that is on the subnet of a rail, though it has another name, or "" if
// there is none.
std::string other_name(const Evidence& evidence, const Words& words, int rank,
                       const std::string& rail) {
  for (const RankFacts& facts : evidence.ranks) {
    for (const RailEnd& end : facts.rails) {
      if (end.rail != rail || end.subnet.empty()) continue;
      std::string other = words.rail_on(rank, end.subnet);
      if (!other.empty() && other != rail) return other;
    }
  }
  return "";
}

// Returns whether the rank has a rail that pairs with this rail of `owner`: by its name, or as auto
// pairs them.
bool has_rail(const Evidence& evidence, int rank, int owner, const std::string& rail) {
  const RankFacts& facts = at(evidence, owner);
  const auto named = [&](const RailEnd& end) { return end.rail == rail; };
  if (std::any_of(at(evidence, rank).rails.begin(), at(evidence, rank).rails.end(), named)) {
    return true;
  }
  const std::vector<Link> links = common_links(facts, at(evidence, rank));
  return std::any_of(links.begin(), links.end(), [&](const Link& link) {
    return facts.rails[static_cast<size_t>(link.rail)].rail == rail;
  });
}

// Returns whether auto has found the rail of that name.
bool is_found(const Evidence& evidence, int rank, const std::string& rail) {
  for (const RailEnd& end : at(evidence, rank).rails) {
    if (end.rail == rail) return end.is_found;
  }
  return false;
}

std::string advice_on_names(const Evidence& evidence, const Words& words, int having,
                            const std::vector<int>& without, const std::string& rail) {
  std::map<std::string, std::vector<int>> others;  // rails of the same network
  for (const int rank : without) {
    const std::string other = other_name(evidence, words, rank, rail);
    if (!other.empty()) others[other].push_back(rank);
  }
  std::string advice;
  for (const auto& [other, ranks] : others) {
    absl::StrAppend(&advice, "The rail ", other, " of ", words.ranks(ranks),
                    " is on the same subnet: ");
    const bool is_mixed =
        is_found(evidence, having, rail) != is_found(evidence, ranks.front(), other);
    absl::StrAppend(&advice, is_mixed ? "auto has named one of them and --rails the other, so use "
                                        "auto on all hosts or on none. "
                                      : "give both one name (tcp:INTERFACE?rail=NAME). ");
  }
  if (!advice.empty()) return advice.substr(0, advice.size() - 1);
  return "Name the same rails on all hosts (--rails, ?rail=NAME), or leave this rail out.";
}

// Returns whether all ends of the rail are reported as unusable.
bool is_unusable(const Evidence& evidence, const std::string& rail) {
  for (const RankFacts& facts : evidence.ranks) {
    for (const RailEnd& end : facts.rails) {
      if (end.rail == rail && end.error.empty()) return false;
    }
  }
  return true;
}

void add_missing(const Evidence& evidence, const Words& words, std::vector<Finding>& findings) {
  std::map<std::string, std::vector<int>> owners;
  for (int rank = 0; rank < count(evidence.ranks); ++rank) {
    for (const RailEnd& end : at(evidence, rank).rails) owners[end.rail].push_back(rank);
  }
  std::set<std::pair<std::string, std::string>> told;  // rails of one network with two names
  for (const auto& [rail, having] : owners) {
    if (is_unusable(evidence, rail)) continue;
    std::vector<int> without;
    for (int rank = 0; rank < count(evidence.ranks); ++rank) {
      if (has_rail(evidence, rank, having.front(), rail)) continue;
      const std::string other = other_name(evidence, words, rank, rail);
      if (told.contains({other, rail})) continue;
      told.insert({rail, other});
      without.push_back(rank);
    }
    if (without.empty()) continue;
    findings.push_back(
        {"missing",
         rail,
         without,
         {},
         absl::StrCat("Rail ", rail, ": ", words.ranks(having),
                      having.size() == 1 ? " has" : " have", " it, and ", words.ranks(without),
                      without.size() == 1 ? " does" : " do", " not. ",
                      advice_on_names(evidence, words, having.front(), without, rail))});
  }
}

void add_strangers(const Evidence& evidence, const Words& words, std::vector<Finding>& findings) {
  for (int one = 0; one < count(evidence.ranks); ++one) {
    std::vector<int> strangers;
    for (int other = one + 1; other < count(evidence.ranks); ++other) {
      if (common_links(at(evidence, one), at(evidence, other)).empty()) strangers.push_back(other);
    }
    if (strangers.empty()) continue;
    std::vector<int> all{one};
    all.insert(all.end(), strangers.begin(), strangers.end());
    findings.push_back(
        {"no-rail",
         "",
         all,
         {},
         absl::StrCat("No rail that can be used is common to ", words.rank(one), " and ",
                      words.ranks(strangers), ". A job of these ranks cannot run.")});
  }
}

// ---- Two interfaces on one subnet --------------------------------------------------------------

void add_answers(const Evidence& evidence, const Words& words, std::vector<Finding>& findings) {
  for (int rank = 0; rank < count(evidence.ranks); ++rank) {
    const std::vector<RailEnd>& rails = at(evidence, rank).rails;
    std::set<std::pair<std::string, std::string>> told;
    for (const RailEnd& end : rails) {
      const bool is_rail = std::any_of(rails.begin(), rails.end(), [&](const RailEnd& other) {
        return other.interface == end.sibling;
      });
      if (!is_rail || !answers_at_either(end)) continue;
      if (!told.insert(std::minmax(end.interface, end.sibling)).second) continue;
      findings.push_back(
          {"arp",
           end.rail,
           {rank},
           {},
           absl::StrCat(
               "Rails of ", words.rank(rank), ": the interfaces ", end.interface, " and ",
               end.sibling, " are on one subnet, and the host answers for either address",
               " at either of them (ARP flux), so that one rail carries nothing as soon as",
               " another host learns the wrong one. Run ", kOneSubnet, " there.")});
    }
  }
}

// ---- MTUs --------------------------------------------------------------------------------------

void add_mtus(const Evidence& evidence, const Words& words, std::vector<Finding>& findings) {
  std::map<std::string, std::map<int, std::vector<int>>> by_rail;  // rail, MTU, ranks
  for (int rank = 0; rank < count(evidence.ranks); ++rank) {
    for (const RailEnd& end : at(evidence, rank).rails) {
      if (end.error.empty() && !end.is_loopback) by_rail[end.rail][end.mtu].push_back(rank);
    }
  }
  for (const auto& [rail, mtus] : by_rail) {
    if (mtus.size() < 2) continue;
    std::vector<std::string> parts;
    std::vector<int> all;
    for (const auto& [mtu, ranks] : mtus) {
      parts.push_back(absl::StrCat(mtu, " bytes on ", words.ranks(ranks)));
      all.insert(all.end(), ranks.begin(), ranks.end());
    }
    std::sort(all.begin(), all.end());
    findings.push_back({"mtu-differs",
                        rail,
                        all,
                        {},
                        absl::StrCat("Rail ", rail, ": the interfaces have different MTUs: ",
                                     listed(parts), ". Give all hosts and switches of this ",
                                     "network one MTU (`ip link set INTERFACE mtu BYTES`).")});
  }
}

}  // namespace

std::vector<Finding> diagnose_ends(const Evidence& evidence) {
  const Words words(evidence);
  std::vector<Finding> findings;
  add_unusable(evidence, words, findings);
  add_down(evidence, words, findings);
  add_own_addresses(evidence, words, findings);
  add_missing(evidence, words, findings);
  add_strangers(evidence, words, findings);
  add_answers(evidence, words, findings);
  add_mtus(evidence, words, findings);
  return findings;
}

bool answers_at_either(const RailEnd& end) {
  return end.is_ipv4() && !end.sibling.empty() && end.arp_ignore == 0 && end.arp_filter == 0;
}

bool is_hopeless(const Words& words, const Way& way) {
  const RailEnd& from = words.from(way);
  const RailEnd& to = words.to(way);
  if (!from.is_running || !to.is_running) return true;
  return from.address == to.address && !words.on_one_host(way.from, way.to);
}

}  // namespace nezha::check
