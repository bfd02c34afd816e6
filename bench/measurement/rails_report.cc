// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/rails_report.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/measurement/report.h"
#include "bench/meeting/json.h"
#include "nezha/context.h"

namespace nezha::bench {
namespace {

constexpr int kAllRanks = 8;         // the most ranks that are all shown
constexpr size_t kMostTroubled = 8;  // the most of more ranks that have lost links or packets

// A rail of a rank.
struct Row {
  int rank = 0;
  RailStats rail;
  double share = 0;  // the part of what the rank has sent
};

bool is_troubled(const Row& row) {
  return row.rail.down_peers > 0 || row.rail.lossy_peers > 0 || row.rail.failures > 0;
}

// ---- from the ranks to rank 0 -----------------------------------------------------------------

std::string encode(const std::vector<RailStats>& rails) {
  std::vector<std::string> lines;
  lines.reserve(rails.size());
  for (const RailStats& rail : rails) {
    lines.push_back(absl::StrJoin(
        std::make_tuple(absl::CEscape(rail.name), absl::CEscape(rail.last_failure),
                        absl::CEscape(rail.last_error), rail.bytes_sent, rail.bytes_received,
                        rail.segments_resent, rail.failures, rail.reconnections, rail.down_peers,
                        rail.lossy_peers, absl::StrFormat("%.17g", rail.rate),
                        absl::StrFormat("%.17g", rail.down_seconds)),
        "\t"));
  }
  return absl::StrJoin(lines, "\n");
}

RailStats decode(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, '\t');
  RailStats rail;
  uint64_t* const counts[] = {&rail.bytes_sent, &rail.bytes_received, &rail.segments_resent,
                              &rail.failures,   &rail.reconnections,  &rail.down_peers,
                              &rail.lossy_peers};
  bool is_good = words.size() == 12 && absl::CUnescape(words[0], &rail.name) &&
                 absl::CUnescape(words[1], &rail.last_failure) &&
                 absl::CUnescape(words[2], &rail.last_error) &&
                 absl::SimpleAtod(words[10], &rail.rate) &&
                 absl::SimpleAtod(words[11], &rail.down_seconds);
  for (size_t i = 0; is_good && i < std::size(counts); ++i) {
    is_good = absl::SimpleAtoi(words[3 + i], counts[i]);
  }
  if (!is_good)
    throw std::runtime_error(
        "a rank runs another version of the program; start the same version on all ranks");
  return rail;
}

std::vector<Row> rows_of(const std::vector<std::string>& texts) {
  std::vector<Row> rows;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const size_t first = rows.size();
    double sent = 0;
    for (const auto line : absl::StrSplit(texts[rank], '\n')) {
      rows.push_back({static_cast<int>(rank), decode(line), 0});
      sent += static_cast<double>(rows.back().rail.bytes_sent);
    }
    for (size_t i = first; i < rows.size() && sent > 0; ++i) {
      rows[i].share = static_cast<double>(rows[i].rail.bytes_sent) / sent;
    }
  }
  return rows;
}

// ---- for programs -----------------------------------------------------------------------------

std::string json_of(const Row& row) {
  const RailStats& rail = row.rail;
  return absl::StrFormat(
      R"({"rank":%d,"name":%s,"sent_bytes":%d,"sent_share":%.4f,"received_bytes":%d,)"
      R"("rate_gbps":%.6f,"resent_segments":%d,"lost_links":%d,"remade_links":%d,"down_peers":%d,)"
      R"("down_s":%.3f,"lossy_peers":%d,"last_error":%s,"last_failure":%s})",
      row.rank, quoted(rail.name), rail.bytes_sent, row.share, rail.bytes_received,
      8 * rail.rate / 1e9, rail.segments_resent, rail.failures, rail.reconnections, rail.down_peers,
      rail.down_seconds, rail.lossy_peers, quoted(rail.last_error), quoted(rail.last_failure));
}

std::vector<std::string> lines_of(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

std::string json_of(const SizeClassStats& known, const BalanceStats& balance) {
  const auto quote = [](std::string* out, const std::string& text) {
    absl::StrAppend(out, quoted(text));
  };
  std::vector<std::string> shares;
  for (size_t lane = 0; lane < known.shares.size(); ++lane) {
    shares.push_back(absl::StrFormat("%s:%.4f", quoted(balance.lanes[lane]), known.shares[lane]));
  }
  return absl::StrFormat(
      R"({"least_bytes":%d,"state":%s,"trying":%s,"windows":%d,"algorithm":%s,"shares":{%s},)"
      R"("history":[%s]})",
      known.least_bytes, quoted(known.state), known.is_trying ? "true" : "false", known.windows,
      quoted(known.algorithm), absl::StrJoin(shares, ","),
      absl::StrJoin(lines_of(known.history), ",", quote));
}

void print_json(const std::vector<Row>& rows, const BalanceStats& balance) {
  std::vector<std::string> rails;
  rails.reserve(rows.size());
  for (const Row& row : rows) rails.push_back(json_of(row));
  std::vector<std::string> classes;
  for (const SizeClassStats& known : balance.classes) classes.push_back(json_of(known, balance));
  std::puts(absl::StrFormat(R"({"rails_report":[%s],"load_balancer":[%s]})",
                            absl::StrJoin(rails, ","), absl::StrJoin(classes, ","))
                .c_str());
}

// ---- for people -------------------------------------------------------------------------------

// Returns all ranks if they are few. Otherwise these are rank 0, for each rail the ranks where its
// share is least and greatest, and some of those that have lost links or packets.
std::set<int> ranks_to_show(const std::vector<Row>& rows, int size) {
  std::set<int> shown{0};
  std::set<int> troubled;
  std::map<std::string, std::pair<const Row*, const Row*>> extremes;  // indexed by rail
  for (const Row& row : rows) {
    if (size <= kAllRanks) shown.insert(row.rank);
    if (is_troubled(row) && troubled.size() < kMostTroubled) troubled.insert(row.rank);
    auto& [least, most] = extremes.try_emplace(row.rail.name, &row, &row).first->second;
    if (row.share < least->share) least = &row;
    if (row.share > most->share) most = &row;
  }
  for (const auto& [rail, both] : extremes) shown.insert({both.first->rank, both.second->rank});
  shown.insert(troubled.begin(), troubled.end());
  return shown;
}

std::string ranks(uint64_t count) { return absl::StrCat(count, count == 1 ? " rank" : " ranks"); }

std::string state_of(const RailStats& rail) {
  std::vector<std::string> parts;
  if (rail.down_peers > 0) {
    parts.push_back(
        absl::StrFormat("down to %s for %.1f s", ranks(rail.down_peers), rail.down_seconds));
  }
  if (rail.lossy_peers > 0) parts.push_back("lossy to " + ranks(rail.lossy_peers));
  return parts.empty() ? "up" : absl::StrJoin(parts, ", ");
}

void print_troubles(const std::vector<Row>& rows, const std::set<int>& shown) {
  std::set<int> others;
  for (const Row& row : rows) {
    const RailStats& rail = row.rail;
    if (!is_troubled(row)) continue;
    if (!shown.contains(row.rank)) {
      others.insert(row.rank);
      continue;
    }
    const std::string who = absl::StrFormat("rank %d, %s: ", row.rank, rail.name);
    if (!rail.last_error.empty())
      std::printf("%sis down to %s\n", who.c_str(), rail.last_error.c_str());
    if (!rail.last_failure.empty()) {
      std::printf("%slast lost its link to %s\n", who.c_str(), rail.last_failure.c_str());
    }
  }
  if (others.size() == 1) std::puts("1 other rank has lost links or packets.");
  if (others.size() > 1) {
    std::printf("%zu other ranks have lost links or packets.\n", others.size());
  }
}

void print_rails(const std::vector<Row>& rows, int size) {
  const std::set<int> shown = ranks_to_show(rows, size);
  std::printf("\nRails, since the ranks joined (warm-ups and checks included)");
  if (shown.size() < static_cast<size_t>(size)) {
    std::printf(
        "; %zu of %d ranks: rank 0, for each rail those\n"
        "where its share is least and greatest, and some of those that have lost links or packets",
        shown.size(), size);
  }
  size_t width = 4;
  size_t state_width = 5;
  for (const Row& row : rows) {
    width = std::max(width, row.rail.name.size());
    state_width = std::max(state_width, state_of(row.rail).size());
  }
  std::printf(":\n%6s  %-*s  %-*s %15s %7s %15s %10s %8s %6s %7s\n", "rank",
              static_cast<int>(width), "rail", static_cast<int>(state_width), "state", "sent (B)",
              "share", "received (B)", "rate", "resent", "lost", "remade");
  for (const Row& row : rows) {
    if (!shown.contains(row.rank)) continue;
    const RailStats& rail = row.rail;
    std::puts(absl::StrFormat("%6d  %-*s  %-*s %15d %6.1f%% %15d %10.3f %8d %6d %7d", row.rank,
                              static_cast<int>(width), rail.name, static_cast<int>(state_width),
                              state_of(rail), rail.bytes_sent, 100 * row.share, rail.bytes_received,
                              8 * rail.rate / 1e9, rail.segments_resent, rail.failures,
                              rail.reconnections)
                  .c_str());
  }
  std::fputs(
      "state: down: to how many ranks the rail has no link, and for how long the rank among\n"
      "  them that has had none for longest has had none; lossy: to how many ranks the rail's\n"
      "  link loses some 3% of the packets or more, and carries only small test messages while\n"
      "  another rail loses less\n"
      "rate: Gbit/s, as nezha has measured the rail's links (0: not known)\n"
      "resent: pieces of messages that other rails sent again; lost: links that died; remade:\n"
      "  lost links that were made again\n",
      stdout);
  print_troubles(rows, shown);
}

std::string size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  for (; unit + 1 < std::size(kUnits) && bytes >= 1024; ++unit) bytes /= 1024;
  return absl::StrCat(bytes, " ", kUnits[unit]);
}

// An experiment that was not faster changes nothing.
void print_history(const std::vector<std::string>& lines) {
  const auto is = [&](size_t i, const char* reason) {
    return i < lines.size() && absl::EndsWith(lines[i], reason);
  };
  int probes = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (is(i, ": probe") && is(i + 1, ": return")) {
      ++probes;
      ++i;
    } else {
      std::printf("  %s\n", lines[i].c_str());
    }
  }
  if (probes > 0) std::printf("  and %d experiments that were not faster\n", probes);
}

void print_balance(const Options& options, const BalanceStats& balance) {
  if (balance.classes.empty()) {
    std::puts(absl::StrFormat(
                  "\nThe load balancer has decided nothing (plan %s, policy %s): stripes go by"
                  " the rails' rates,\nor by the fastest rail if they are short, and slices"
                  " by --share.",
                  options.plan, options.policy)
                  .c_str());
    return;
  }
  std::puts(
      "\nWhat the load balancer has decided, by the messages' size (the latest changes, local "
      "time):");
  for (const SizeClassStats& known : balance.classes) {
    std::vector<std::string> parts;
    for (size_t lane = 0; lane < known.shares.size(); ++lane) {
      if (known.shares[lane] == 0) continue;
      parts.push_back(absl::StrFormat("%s %.1f%%", balance.lanes[lane], 100 * known.shares[lane]));
    }
    std::puts(absl::StrFormat("%s to %s: %s%s after %d windows, %s%s%s",
                              size_text(known.least_bytes), size_text(2 * known.least_bytes),
                              known.state, known.is_trying ? " (trying)" : "", known.windows,
                              absl::StrJoin(parts, ", "), known.algorithm.empty() ? "" : ", by ",
                              known.algorithm)
                  .c_str());
    print_history(lines_of(known.history));
  }
  std::puts(
      "A window is up to ten operations. start: the first division; search: compares sets of\n"
      "  rails; rebalance: lets the rails finish together; drift: rails take longer or shorter\n"
      "  than they used to; probe: an experiment uses another way; return: the experiment was\n"
      "  not faster; way: the experiment was faster, and its way stays; lanes: a rail was lost or\n"
      "  came back\n"
      "Messages that are not listed go as stripes, by the rails' rates, or by the fastest rail if\n"
      "they are short.");
}

}  // namespace

void report_rails(const Runner& runner, const Options& options, Meeting& meeting) {
  const auto texts = meeting.at_rank_0("rails-report", encode(runner.rails()));
  if (options.rank != 0) return;
  const std::vector<Row> rows = rows_of(texts);
  const BalanceStats balance = runner.balance();
  if (options.format == Format::kJson) {
    print_json(rows, balance);
  } else {
    print_rails(rows, options.size);
    print_balance(options, balance);
  }
  flush_output();
}

}  // namespace nezha::bench
