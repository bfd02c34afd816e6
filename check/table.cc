// SPDX-License-Identifier: Apache-2.0
#include "check/table.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "check/pairing.h"
#include "check/ways.h"

namespace nezha::check {
namespace {

using Row = std::array<std::string, 7>;
using Ranks = std::pair<int, int>;
using Hosts = std::pair<std::string, std::string>;  // two hosts in alphabetical order

constexpr size_t kMostPairs = 40;  // lines of pairs of one rail

// A line holds what is known of a rail between two ranks. The lower rank is the first.
struct Line {
  Ranks ranks;
  bool there = false;  // a connection could be made
  bool back = false;
  const Path* path = nullptr;  // null: nothing was measured
  int mtu = 0;
  // Ranks of one host do not measure, nor do further ranks of two hosts.
  bool is_to_measure = false;

  bool is_well() const {
    const bool is_measured =
        path != nullptr && path->error.empty() && !path->loses_there && !path->loses_back;
    return there && back && (is_measured || !is_to_measure);
  }
};

// Returns the hosts of two ranks. A finding on two ranks holds for all ranks of their hosts.
Hosts hosts_of(const Words& words, const Ranks& ranks) {
  return std::minmax(words.facts(ranks.first).namespace_id, words.facts(ranks.second).namespace_id);
}

// Tells for each rank whether it is the first one of its host, which measures for all of them.
std::vector<bool> first_of_hosts(const Evidence& evidence) {
  std::set<std::string> known;
  std::vector<bool> measures;
  measures.reserve(evidence.ranks.size());
  for (const RankFacts& facts : evidence.ranks) {
    measures.push_back(known.insert(facts.namespace_id).second);
  }
  return measures;
}

std::map<std::string, std::vector<Line>> lines_by_rail(const Evidence& evidence) {
  const Words words(evidence);
  std::map<std::string, std::vector<Line>> rails;
  std::map<std::tuple<int, int, int>, const Path*> paths;  // indexed by ranks and rail
  for (const Path& path : evidence.paths) paths[{path.from, path.to, path.rail}] = &path;
  const std::vector<bool> measures = first_of_hosts(evidence);
  const int size = static_cast<int>(evidence.ranks.size());
  for (int low = 0; low < size; ++low) {
    for (int high = low + 1; high < size; ++high) {
      for (const Link& link : common_links(evidence.ranks[static_cast<size_t>(low)],
                                           evidence.ranks[static_cast<size_t>(high)])) {
        const Way way{low, high, link.rail, link.peer_rail};
        Line line{{low, high}};
        line.there = has_reached(evidence, low, high, link.rail);
        line.back = has_reached(evidence, high, low, link.peer_rail);
        line.is_to_measure =
            measures[static_cast<size_t>(low)] && measures[static_cast<size_t>(high)];
        line.mtu = std::min(words.from(way).mtu, words.to(way).mtu);
        const auto path = paths.find({low, high, link.rail});
        if (path != paths.end()) line.path = path->second;
        rails[words.rail(way)].push_back(line);
      }
    }
  }
  return rails;
}

// Returns the two values as text. A value that was not measured is "-".
std::string both(double there, double back) {
  const auto one = [](double value) {
    return value < 0 ? std::string("-") : absl::StrFormat("%.3g", value);
  };
  return there < 0 && back < 0 ? "-" : absl::StrCat(one(there), " / ", one(back));
}

std::string both(int there, int back) {
  return there < 0 && back < 0 ? "-" : absl::StrCat(there, " / ", back);
}

std::string ways_connected(const Line& line) {
  if (line.there && line.back) return "both ways";
  return line.there ? "there only" : line.back ? "back only" : "no";
}

Row row_of(const std::string& rail, const std::string& ranks, const Line& line, const Path& path) {
  return {rail,
          ranks,
          ways_connected(line),
          path.round_trip_us < 0 ? "-" : absl::StrFormat("%.0f", path.round_trip_us),
          both(path.gbps_there, path.gbps_back),
          both(path.frame_there, path.frame_back),
          std::to_string(line.mtu)};
}

// Returns one row with the worst values of lines that are all well.
Row summary(const std::string& rail, const std::string& ranks, const std::vector<Line>& lines) {
  Path worst;
  Line line = lines.front();
  bool is_first = true;
  for (const Line& each : lines) {
    line.there &= each.there;
    line.back &= each.back;
    line.mtu = std::min(line.mtu, each.mtu);
    if (each.path == nullptr) continue;
    const Path& path = *each.path;
    const auto lower = [&](auto& value, auto other) {
      value = is_first ? other : std::min(value, other);
    };
    worst.round_trip_us = std::max(worst.round_trip_us, path.round_trip_us);
    lower(worst.gbps_there, path.gbps_there);
    lower(worst.gbps_back, path.gbps_back);
    lower(worst.frame_there, path.frame_there);
    lower(worst.frame_back, path.frame_back);
    is_first = false;
  }
  return row_of(rail, ranks, line, worst);
}

void add_rail(const Words& words, const std::string& rail, const std::vector<Line>& lines,
              const std::set<Hosts>& faulty, std::vector<Row>& rows) {
  std::vector<Line> well;
  std::vector<Line> rest;
  for (const Line& line : lines) {
    (line.is_well() && !faulty.contains(hosts_of(words, line.ranks)) ? well : rest).push_back(line);
  }
  const auto name = [&](const Line& line) {
    const auto [low, high] = line.ranks;
    return absl::StrCat(low, " (", words.host(low), ") - ", high, " (", words.host(high), ")");
  };
  if (well.size() == 1) {
    rows.push_back(summary(rail, name(well.front()), well));
  } else if (!well.empty()) {
    const absl::string_view which = rest.empty() ? "all " : "other ";
    rows.push_back(summary(rail, absl::StrCat(which, well.size(), " pairs"), well));
  }
  for (size_t i = 0; i < std::min(rest.size(), kMostPairs); ++i) {
    const Path* path = rest[i].path;
    rows.push_back(row_of(rail, name(rest[i]), rest[i], path == nullptr ? Path() : *path));
  }
  if (rest.size() > kMostPairs) {
    rows.push_back({rail, absl::StrCat(rest.size() - kMostPairs, " pairs more")});
  }
}

std::string laid_out(const std::vector<Row>& rows) {
  std::array<size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      absl::StrAppend(&text, row[i], std::string(widths[i] - row[i].size() + 2, ' '));
    }
    absl::StrAppend(&text, row.back(), "\n");
  }
  return text;
}

}  // namespace

std::string table(const Evidence& evidence, const std::vector<Finding>& findings) {
  const Words words(evidence);
  std::map<std::string, std::set<Hosts>> faulty;
  for (const Finding& finding : findings) {
    for (const auto& pair : finding.pairs) {
      faulty[finding.rail].insert(hosts_of(words, pair));
    }
  }
  std::vector<Row> rows{
      {"rail", "ranks", "connected", "round trip (us)", "Gbit/s", "packets (bytes)", "MTU"}};
  for (const auto& [rail, lines] : lines_by_rail(evidence)) {
    add_rail(words, rail, lines, faulty[rail], rows);
  }
  return laid_out(rows);
}

}  // namespace nezha::check
