// SPDX-License-Identifier: Apache-2.0
#include "check/report.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/meeting/json.h"
#include "check/table.h"
#include "check/ways.h"
#include "nezha/version.h"

namespace nezha::check {
namespace {

constexpr size_t kWidth = 100;  // the width of sentences, in characters

// Cuts the text into lines between words. `first` begins the first line, and `rest` each of the
// others.
std::string wrapped(const std::string& text, const std::string& first, const std::string& rest) {
  std::string lines;
  std::string line = first;
  bool is_empty = true;
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  for (const std::string& word : words) {
    if (!is_empty && line.size() + 1 + word.size() > kWidth) {
      absl::StrAppend(&lines, line, "\n");
      line = rest;
      is_empty = true;
    }
    absl::StrAppend(&line, is_empty ? "" : " ", word);
    is_empty = false;
  }
  return absl::StrCat(lines, line, "\n");
}

// ---- JSON --------------------------------------------------------------------------------------

using bench::quoted;

std::string number(double value) { return value < 0 ? "null" : absl::StrCat(value); }

std::string outcome_name(Outcome outcome) {
  constexpr std::array kNames = {"connected",    "refused",         "silent",   "no-route",
                                 "no-neighbour", "wrong-interface", "stranger", "failed"};
  return kNames[static_cast<size_t>(outcome)];
}

// Returns {"name":value,...}. The values are JSON.
std::string object(const std::vector<std::pair<std::string, std::string>>& members) {
  std::vector<std::string> parts;
  parts.reserve(members.size());
  for (const auto& [name, value] : members) parts.push_back(absl::StrCat("\"", name, "\":", value));
  return absl::StrCat("{", absl::StrJoin(parts, ","), "}");
}

template <typename Values, typename ToJson>
std::string array(const Values& values, ToJson to_json) {
  std::vector<std::string> parts;
  parts.reserve(values.size());
  for (const auto& value : values) parts.push_back(to_json(value));
  return absl::StrCat("[", absl::StrJoin(parts, ","), "]");
}

std::string json_of(const RailEnd& end) {
  return object({{"rail", quoted(end.rail)},
                 {"interface", quoted(end.interface)},
                 {"address", quoted(end.address)},
                 {"subnet", quoted(end.subnet)},
                 {"mtu", absl::StrCat(end.mtu)},
                 {"error", quoted(end.error)}});
}

std::string json_of_ranks(const Evidence& evidence) {
  int rank = 0;
  return array(evidence.ranks, [&](const RankFacts& facts) {
    const std::string rails = array(facts.rails, [](const RailEnd& end) { return json_of(end); });
    return object({{"rank", absl::StrCat(rank++)}, {"host", quoted(facts.host)}, {"rails", rails}});
  });
}

std::string json_of_connections(const Evidence& evidence) {
  const Words words(evidence);
  std::vector<std::string> all;
  for (int rank = 0; rank < static_cast<int>(evidence.reaches.size()); ++rank) {
    for (const Reach& reach : evidence.reaches[static_cast<size_t>(rank)]) {
      const Way way{rank, reach.peer, reach.rail, reach.peer_rail};
      all.push_back(object({{"rail", quoted(words.rail(way))},
                            {"from", absl::StrCat(rank)},
                            {"to", absl::StrCat(reach.peer)},
                            {"outcome", quoted(outcome_name(reach.outcome))},
                            {"detail", quoted(reach.detail)}}));
    }
  }
  return absl::StrCat("[", absl::StrJoin(all, ","), "]");
}

std::string json_of_paths(const Evidence& evidence) {
  const Words words(evidence);
  return array(evidence.paths, [&](const Path& path) {
    const Way way{path.from, path.to, path.rail, path.to_rail};
    return object({{"rail", quoted(words.rail(way))},
                   {"from", absl::StrCat(path.from)},
                   {"to", absl::StrCat(path.to)},
                   {"round_trip_us", number(path.round_trip_us)},
                   {"gbps_there", number(path.gbps_there)},
                   {"gbps_back", number(path.gbps_back)},
                   {"packet_there", number(path.frame_there)},
                   {"packet_back", number(path.frame_back)},
                   {"error", quoted(path.error)}});
  });
}

std::string json_of(const Finding& finding) {
  return object({{"kind", quoted(finding.kind)},
                 {"rail", quoted(finding.rail)},
                 {"ranks", absl::StrCat("[", absl::StrJoin(finding.ranks, ","), "]")},
                 {"text", quoted(finding.text)}});
}

}  // namespace

std::string verdict(const Evidence& evidence, const std::vector<Finding>& findings) {
  if (findings.empty() && evidence.paths.empty()) {
    return "nothing is known to be wrong, and nothing was measured: all ranks are on one host, so "
           "that what they send each other goes over none of its networks. Start ranks on all "
           "hosts";
  }
  if (findings.empty()) return "all is well";
  return findings.size() == 1 ? "1 fault" : absl::StrCat(findings.size(), " faults");
}

std::string text_report(const Evidence& evidence, const std::vector<Finding>& findings) {
  std::string text = absl::StrCat(table(evidence, findings), "\n");
  int count = 0;
  for (const Finding& finding : findings) {
    absl::StrAppend(&text, wrapped(finding.text, absl::StrFormat("%2d. ", ++count), "    "));
  }
  if (!findings.empty()) text += "\n";
  return absl::StrCat(text, wrapped(verdict(evidence, findings), "nezha-check: ", "  "));
}

std::string json_report(const Evidence& evidence, const std::vector<Finding>& findings) {
  return object(
             {{"program", quoted("nezha-check")},
              {"version", quoted(NEZHA_VERSION)},
              {"well", findings.empty() ? "true" : "false"},
              {"measured", evidence.paths.empty() ? "false" : "true"},
              {"ranks", json_of_ranks(evidence)},
              {"connections", json_of_connections(evidence)},
              {"paths", json_of_paths(evidence)},
              {"findings", array(findings, [](const Finding& each) { return json_of(each); })}}) +
         "\n";
}

}  // namespace nezha::check
