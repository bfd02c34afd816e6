// SPDX-License-Identifier: Apache-2.0
#include "check/measurement.h"

#include <algorithm>
#include <stdexcept>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace nezha::check {
namespace {

// A row is a line, and its fields are separated by tabs.
using Row = std::vector<std::string>;

std::string text_of(const std::vector<Row>& rows) {
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    Row clean;
    for (const std::string& field : row) {
      clean.push_back(absl::StrReplaceAll(field, {{"\t", " "}, {"\n", " "}, {"\r", " "}}));
    }
    lines.push_back(absl::StrJoin(clean, "\t"));
  }
  return absl::StrJoin(lines, "\n");
}

[[noreturn]] void refuse(const std::string& why) {
  throw std::runtime_error(
      absl::StrCat("another rank runs another version of nezha-check (", why, ")"));
}

// Takes the fields of a row in turn.
class Fields {
 public:
  Fields(absl::string_view line, size_t count) : row_(absl::StrSplit(line, '\t')) {
    if (row_.size() != count) {
      refuse(absl::StrCat("a line has ", row_.size(), " fields in place of ", count));
    }
  }

  std::string text() { return row_[next_++]; }

  int number(int least, int most) {
    int value = 0;
    const std::string& field = row_[next_++];
    if (!absl::SimpleAtoi(field, &value) || value < least || value > most) {
      refuse(absl::StrCat("'", field, "' is no number from ", least, " to ", most));
    }
    return value;
  }

  double real() {
    double value = 0;
    const std::string& field = row_[next_++];
    if (!absl::SimpleAtod(field, &value) || !(value >= -1) || !(value < 1e12)) {
      refuse(absl::StrCat("'", field, "' is no measured value"));
    }
    return value;
  }

 private:
  Row row_;
  size_t next_ = 0;
};

std::vector<std::string> lines_of(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

constexpr absl::string_view kFormat = "nezha-check 2";
constexpr int kMaxNumber = 1 << 30;
constexpr size_t kHeadFields = 4;
constexpr size_t kEndFields = 15;
constexpr size_t kReachFields = 5;
constexpr size_t kPathFields = 12;

std::string str(int number) { return std::to_string(number); }

int last(const std::vector<RankFacts>& ranks) { return static_cast<int>(ranks.size()) - 1; }

int last_rail(const std::vector<RankFacts>& ranks, int rank) {
  return static_cast<int>(ranks[static_cast<size_t>(rank)].rails.size()) - 1;
}

RailEnd decode_end(const std::string& line) {
  Fields fields(line, kEndFields);
  RailEnd end;
  end.rail = fields.text();
  end.interface = fields.text();
  end.is_found = fields.number(0, 1) == 1;
  end.error = fields.text();
  end.address = fields.text();
  end.subnet = fields.text();
  end.port = static_cast<uint16_t>(fields.number(0, 65535));
  end.mtu = fields.number(0, kMaxNumber);
  end.is_running = fields.number(0, 1) == 1;
  end.is_loopback = fields.number(0, 1) == 1;
  end.rp_filter = fields.number(0, kMaxNumber);
  end.arp_ignore = fields.number(0, kMaxNumber);
  end.arp_filter = fields.number(0, kMaxNumber);
  end.sibling = fields.text();
  end.kind = fields.text();
  return end;
}

}  // namespace

bool has_reached(const Evidence& evidence, int rank, int peer, int rail) {
  const auto& reaches = evidence.reaches[static_cast<size_t>(rank)];
  return std::any_of(reaches.begin(), reaches.end(), [&](const Reach& reach) {
    return reach.peer == peer && reach.rail == rail && reach.outcome == Outcome::kConnected;
  });
}

std::string encode(const RankFacts& facts) {
  std::vector<Row> rows{{std::string(kFormat), str(facts.size), facts.host, facts.namespace_id}};
  for (const RailEnd& end : facts.rails) {
    rows.push_back({end.rail, end.interface, str(end.is_found), end.error, end.address, end.subnet,
                    str(end.port), str(end.mtu), str(end.is_running), str(end.is_loopback),
                    str(end.rp_filter), str(end.arp_ignore), str(end.arp_filter), end.sibling,
                    end.kind});
  }
  return text_of(rows);
}

RankFacts decode_facts(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  if (lines.empty()) refuse("it says nothing of its host");
  Fields head(lines.front(), kHeadFields);
  RankFacts facts;
  if (head.text() != kFormat) refuse("it begins otherwise");
  facts.size = head.number(1, kMaxNumber);
  facts.host = head.text();
  facts.namespace_id = head.text();
  for (size_t i = 1; i < lines.size(); ++i) facts.rails.push_back(decode_end(lines[i]));
  return facts;
}

std::string encode(const std::vector<Reach>& reaches) {
  std::vector<Row> rows;
  rows.reserve(reaches.size());
  for (const Reach& reach : reaches) {
    rows.push_back({str(reach.peer), str(reach.rail), str(reach.peer_rail),
                    str(static_cast<int>(reach.outcome)), reach.detail});
  }
  return text_of(rows);
}

std::vector<Reach> decode_reaches(const std::string& text, int rank,
                                  const std::vector<RankFacts>& ranks) {
  std::vector<Reach> reaches;
  for (const std::string& line : lines_of(text)) {
    Fields fields(line, kReachFields);
    Reach reach;
    reach.peer = fields.number(0, last(ranks));
    reach.rail = fields.number(0, last_rail(ranks, rank));
    reach.peer_rail = fields.number(0, last_rail(ranks, reach.peer));
    reach.outcome = static_cast<Outcome>(fields.number(0, static_cast<int>(Outcome::kFailed)));
    reach.detail = fields.text();
    reaches.push_back(std::move(reach));
  }
  return reaches;
}

std::string encode(const std::vector<Path>& paths) {
  std::vector<Row> rows;
  rows.reserve(paths.size());
  for (const Path& path : paths) {
    rows.push_back({str(path.from), str(path.to), str(path.rail), str(path.to_rail),
                    str(path.frame_there), str(path.frame_back), str(path.loses_there),
                    str(path.loses_back), absl::StrCat(path.round_trip_us),
                    absl::StrCat(path.gbps_there), absl::StrCat(path.gbps_back), path.error});
  }
  return text_of(rows);
}

std::vector<Path> decode_paths(const std::string& text, const std::vector<RankFacts>& ranks) {
  std::vector<Path> paths;
  for (const std::string& line : lines_of(text)) {
    Fields fields(line, kPathFields);
    Path path;
    path.from = fields.number(0, last(ranks));
    path.to = fields.number(0, last(ranks));
    path.rail = fields.number(0, last_rail(ranks, path.from));
    path.to_rail = fields.number(0, last_rail(ranks, path.to));
    path.frame_there = fields.number(Path::kUnknown, kMaxNumber);
    path.frame_back = fields.number(Path::kUnknown, kMaxNumber);
    path.loses_there = fields.number(0, 1) == 1;
    path.loses_back = fields.number(0, 1) == 1;
    path.round_trip_us = fields.real();
    path.gbps_there = fields.real();
    path.gbps_back = fields.real();
    path.error = fields.text();
    paths.push_back(std::move(path));
  }
  return paths;
}

}  // namespace nezha::check
