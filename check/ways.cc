// SPDX-License-Identifier: Apache-2.0
#include "check/ways.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "check/pairing.h"

namespace nezha::check {
namespace {

constexpr size_t kMostNames = 8;  // the most names in one list

using Matches = std::function<bool(const Way&)>;

std::vector<Way> those(const std::vector<Way>& ways, const Matches& matches) {
  std::vector<Way> found;
  std::copy_if(ways.begin(), ways.end(), std::back_inserter(found), matches);
  return found;
}

std::vector<int> each_once(const std::vector<Way>& ways, bool from, bool to) {
  std::set<int> ranks;
  for (const Way& way : ways) {
    if (from) ranks.insert(way.from);
    if (to) ranks.insert(way.to);
  }
  return {ranks.begin(), ranks.end()};
}

// The ways of one rail: all of them, the faulty ones, and those that no group has yet.
struct Ways {
  const std::vector<Way>& all;
  const std::vector<Way>& faulty;
  std::vector<Way> left;
};

// Moves the ways that match from `left` to a group, if all ways of the rail that match are faulty
// and those that are left join a rank to several others. The way between two bad hosts belongs to
// the group of the first one, and the second one has a group of its own all the same.
void take_group(Group::Kind kind, int rank, const Matches& matches, Ways& ways,
                std::vector<Group>& groups) {
  if (those(ways.faulty, matches).size() != those(ways.all, matches).size()) return;
  std::vector<Way> mine = those(ways.left, matches);
  if (members(mine).size() < 3) return;
  ways.left = those(ways.left, [&](const Way& way) { return !matches(way); });
  groups.push_back({kind, rank, std::move(mine)});
}

}  // namespace

std::vector<int> senders(const std::vector<Way>& ways) { return each_once(ways, true, false); }
std::vector<int> receivers(const std::vector<Way>& ways) { return each_once(ways, false, true); }
std::vector<int> members(const std::vector<Way>& ways) { return each_once(ways, true, true); }

std::vector<Way> one_per_hosts(const Words& words, const std::vector<Way>& ways) {
  std::set<std::pair<std::string, std::string>> told;
  return those(ways, [&](const Way& way) {
    return told.insert({words.facts(way.from).namespace_id, words.facts(way.to).namespace_id})
        .second;
  });
}

std::vector<Group> group(const std::vector<Way>& faulty, const std::vector<Way>& all) {
  std::vector<Group> groups;
  Ways ways{all, faulty, faulty};
  take_group(
      Group::Kind::kEverybody, 0, [](const Way&) { return true; }, ways, groups);
  for (const int rank : members(ways.left)) {
    const auto matches = [rank](const Way& way) { return way.from == rank || way.to == rank; };
    take_group(Group::Kind::kRank, rank, matches, ways, groups);
  }
  for (const int rank : members(ways.left)) {
    const auto to_it = [rank](const Way& way) { return way.to == rank; };
    const auto from_it = [rank](const Way& way) { return way.from == rank; };
    take_group(Group::Kind::kToRank, rank, to_it, ways, groups);
    take_group(Group::Kind::kFromRank, rank, from_it, ways, groups);
  }
  while (!ways.left.empty()) {
    const Way first = ways.left.front();
    const auto is_between = [&](const Way& way) {
      return std::minmax(way.from, way.to) == std::minmax(first.from, first.to);
    };
    std::vector<Way> mine = those(ways.left, is_between);
    ways.left = those(ways.left, [&](const Way& way) { return !is_between(way); });
    const bool both = senders(mine).size() == 2;
    groups.push_back({both ? Group::Kind::kPair : Group::Kind::kWay, 0, std::move(mine)});
  }
  return groups;
}

std::string listed(const std::vector<std::string>& names) {
  if (names.size() == 1) return names.front();
  if (names.size() > kMostNames) {
    const std::vector<std::string> first(names.begin(), names.begin() + kMostNames);
    return absl::StrCat(absl::StrJoin(first, ", "), " and ", names.size() - kMostNames, " more");
  }
  const std::vector<std::string> first(names.begin(), names.end() - 1);
  return absl::StrCat(absl::StrJoin(first, ", "), " and ", names.back());
}

const RailEnd& Words::end(int rank, int rail) const {
  return facts(rank).rails[static_cast<size_t>(rail)];
}

const RankFacts& Words::facts(int rank) const { return evidence_.ranks[static_cast<size_t>(rank)]; }

const std::string& Words::host(int rank) const { return facts(rank).host; }

bool Words::on_one_host(int one, int other) const {
  return facts(one).namespace_id == facts(other).namespace_id;
}

std::string Words::rank(int number) const {
  return absl::StrCat("rank ", number, " (", host(number), ")");
}

std::string Words::ranks(const std::vector<int>& numbers) const {
  std::vector<std::string> names;
  names.reserve(numbers.size());
  for (const int number : numbers) names.push_back(absl::StrCat(number, " (", host(number), ")"));
  return absl::StrCat(numbers.size() == 1 ? "rank " : "ranks ", listed(names));
}

std::string Words::hosts(const std::vector<int>& numbers) const {
  std::vector<std::string> names;
  for (const int number : numbers) {
    if (std::count(names.begin(), names.end(), host(number)) == 0) names.push_back(host(number));
  }
  return listed(names);
}

std::string Words::rail(const Way& way) const { return label(from(way), to(way)); }

std::string Words::where(const Group& group) const {
  switch (group.kind) {
    case Group::Kind::kEverybody:
      return "between all ranks";
    case Group::Kind::kRank:
      return absl::StrCat("between ", rank(group.rank), " and every other rank");
    case Group::Kind::kToRank:
      return absl::StrCat("from every other rank to ", rank(group.rank));
    case Group::Kind::kFromRank:
      return absl::StrCat("from ", rank(group.rank), " to every other rank");
    case Group::Kind::kPair:
      return absl::StrCat("between ", rank(group.ways.front().from), " and ",
                          rank(group.ways.front().to));
    case Group::Kind::kWay:
      return absl::StrCat("from ", rank(group.ways.front().from), " to ",
                          rank(group.ways.front().to));
  }
  return "";
}

std::string Words::suspects(const Group& group) const {
  const bool has_one = group.kind == Group::Kind::kRank || group.kind == Group::Kind::kToRank ||
                       group.kind == Group::Kind::kFromRank;
  return has_one ? host(group.rank) : hosts(members(group.ways));
}

bool Words::connect_back(const Group& group) const {
  return std::all_of(group.ways.begin(), group.ways.end(), [&](const Way& way) {
    const auto& theirs = evidence_.reaches[static_cast<size_t>(way.to)];
    return std::any_of(theirs.begin(), theirs.end(), [&](const Reach& reach) {
      return reach.peer == way.from && reach.rail == way.to_rail && reach.peer_rail == way.rail &&
             reach.outcome == Outcome::kConnected;
    });
  });
}

std::string Words::consequence(const Group& group) const {
  if (connect_back(group)) {
    return "A job uses the rail there all the same: the other end makes the connections.";
  }
  const auto has_rail = [&](int from, int to) {
    const auto& reaches = evidence_.reaches[static_cast<size_t>(from)];
    return std::any_of(reaches.begin(), reaches.end(), [&](const Reach& reach) {
      return reach.peer == to && reach.outcome == Outcome::kConnected;
    });
  };
  const bool goes_on = std::all_of(group.ways.begin(), group.ways.end(), [&](const Way& way) {
    return has_rail(way.from, way.to) || has_rail(way.to, way.from);
  });
  return goes_on ? "A job runs without this rail there."
                 : "A job stops with an error as soon as two of these ranks exchange data that no "
                   "other rail joins.";
}

std::string Words::rail_on(int rank, const std::string& subnet) const {
  for (const RailEnd& end : facts(rank).rails) {
    if (end.subnet == subnet && end.error.empty()) return end.rail;
  }
  return "";
}

Finding Words::finding(const std::string& kind, const Group& group, const std::string& text) const {
  Finding finding{kind, rail(group.ways.front()), members(group.ways), {}, ""};
  for (const Way& way : group.ways) finding.pairs.emplace_back(way.from, way.to);
  finding.text = absl::StrCat("Rail ", finding.rail, ", ", where(group), ": ", text);
  return finding;
}

}  // namespace nezha::check
