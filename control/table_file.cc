// SPDX-License-Identifier: Apache-2.0
#include "control/table_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collectives/schedule_kind.h"
#include "common/descriptor.h"
#include "transport/wire.h"

namespace nezha {
namespace {

constexpr absl::string_view kTitle = "nezha data length table 1";
constexpr size_t kLargest = 1 << 20;                // bytes
constexpr uint64_t kMostTime = uint64_t{1} << 60;   // nanoseconds
constexpr uint64_t kMostCount = uint64_t{1} << 60;  // far from overflow: each run adds some

constexpr ClassState kStates[] = {ClassState::kSearching, ClassState::kCold, ClassState::kHot,
                                  ClassState::kConverged};
constexpr Cause kCauses[] = {Cause::kStart, Cause::kSearch, Cause::kRebalance, Cause::kDrift,
                             Cause::kProbe, Cause::kReturn, Cause::kLanes,     Cause::kWay};
// Algorithms other than the default for a size (kAuto), which files leave out.
constexpr Algorithm kAlgorithms[] = {Algorithm::kRecursiveDoubling, Algorithm::kHalvingDoubling};
std::string name_of(Algorithm algorithm) {
  if (algorithm == Algorithm::kRecursiveDoubling) return "recursive doubling";  // its name in files
  return algorithm_name(algorithm);
}

// Reads the lines one after the other. The first error stays; after it, every read returns an empty
// value.
class Parser {
 public:
  Parser(absl::string_view text, absl::string_view name) : name_(name) {
    if (!text.empty() && text.back() == '\n') {
      lines_ = absl::StrSplit(text.substr(0, text.size() - 1), '\n');
    } else {
      next_ = 1 + static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
      fail("does not end with a line's end: a part is missing");
    }
  }

  DataLengthTable table() {
    if (line() != kTitle) fail(absl::StrCat("is not '", kTitle, "'"));
    DataLengthTable table;
    const uint64_t lanes = number(rest("lanes"), kMaxLanes);
    if (lanes == 0) fail("has no lanes");
    for (uint64_t i = 0; i < lanes && ok(); ++i) table.lanes.push_back(lane_name(table.lanes));
    lanes_ = table.lanes.size();
    while (ok() && !is_at("end")) read_class(table);
    if (ok() && !rest("end").empty()) fail("has something after 'end'");
    if (ok() && next_ != lines_.size()) {
      ++next_;
      fail("comes after the end");
    }
    return table;
  }

  const absl::Status& status() const { return status_; }

 private:
  bool ok() const { return status_.ok(); }

  void fail(absl::string_view what) {
    if (!ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(name_, " is no data length table: line ",
                                                      std::max<size_t>(1, next_), " ", what));
  }

  absl::string_view line() {
    if (!ok()) return {};
    if (next_ == lines_.size()) {
      ++next_;
      fail("is missing");
      return {};
    }
    return lines_[next_++];
  }
  bool is_at(absl::string_view keyword) const {
    return next_ < lines_.size() && lines_[next_] == keyword;
  }

  bool is_next(absl::string_view keyword) const {
    return ok() && next_ < lines_.size() &&
           absl::StartsWith(lines_[next_], absl::StrCat(keyword, " "));
  }

  // Returns the text after the keyword on the next line.
  absl::string_view rest(absl::string_view keyword) {
    const absl::string_view it = line();
    if (it == keyword) return {};
    if (it.substr(0, keyword.size()) != keyword || it.substr(keyword.size(), 1) != " ") {
      fail(absl::StrCat("does not begin with '", keyword, "'"));
      return {};
    }
    return it.substr(keyword.size() + 1);
  }

  // Accepts a number only in the form in which StrCat() writes it.
  uint64_t number(absl::string_view text, uint64_t most) {
    uint64_t value = 0;
    if (!absl::SimpleAtoi(text, &value) || absl::StrCat(value) != text || value > most) {
      fail(absl::StrCat("has '", absl::CEscape(text.substr(0, 40)), "' where a number of at most ",
                        most, " belongs"));
      return 0;
    }
    return value;
  }

  std::vector<uint64_t> numbers(absl::string_view text, uint64_t most) {
    std::vector<uint64_t> values;
    for (const absl::string_view one : absl::StrSplit(text, ' ')) {
      values.push_back(number(one, most));
      if (!ok()) return {};
    }
    if (values.size() != lanes_) fail(absl::StrCat("is not of ", lanes_, " lanes"));
    return values;
  }

  Allocation allocation(absl::string_view text) {
    uint64_t sum = 0;
    Allocation parts;
    for (const uint64_t part : numbers(text, SliceBounds::kWhole)) {
      parts.push_back(static_cast<uint32_t>(part));
      sum += part;
    }
    if (sum != SliceBounds::kWhole) {
      fail(absl::StrCat("has parts that add up to ", sum, ", not ", SliceBounds::kWhole));
    }
    return parts;
  }

  template <typename Value, size_t n>
  Value named(absl::string_view name, const Value (&values)[n]) {
    for (const Value value : values) {
      if (name_of(value) == name) return value;
    }
    fail(absl::StrCat(
        "has '", absl::CEscape(name.substr(0, 40)), "' where one of ",
        absl::StrJoin(values, ", ",
                      [](std::string* out, Value value) { absl::StrAppend(out, name_of(value)); }),
        " belongs"));
    return values[0];
  }

  std::string lane_name(const std::vector<std::string>& others) {
    const absl::string_view text = rest("lane");
    std::string name;
    if (!absl::CUnescape(text, &name) || name.empty() || absl::CEscape(name) != text) {
      fail("has no lane's name");
    }
    if (std::find(others.begin(), others.end(), name) != others.end()) fail("has a name again");
    return name;
  }

  void read_class(DataLengthTable& table) {
    const auto size_class = static_cast<SizeClass>(number(rest("class"), kSizeClasses - 1));
    if (!table.entries.empty() && size_class <= table.entries.rbegin()->first) {
      fail("has a class that does not come after the one before");
    }
    TableEntry entry;
    entry.state = named(rest("state"), kStates);
    entry.allocation = allocation(rest("parts"));
    if (is_next("algorithm")) entry.algorithm = named(rest("algorithm"), kAlgorithms);
    entry.windows = number(rest("windows"), kMostCount);
    if (entry.windows == 0) fail("has a class without windows");
    entry.bytes = number(rest("bytes"), wire::kMaxMessage);
    if (entry.bytes == 0 || size_class_of(entry.bytes) != size_class)
      fail("has a size of another class");
    entry.ran_by = allocation(rest("ran-by"));
    read_times(entry);
    entry.changes = number(rest("changes"), kMostCount);
    while (is_next("change")) {
      read_change(entry);
    }
    if (ok()) table.entries.emplace(size_class, std::move(entry));
  }

  void read_times(TableEntry& entry) {
    bool took_part = false;
    for (const uint64_t time : numbers(rest("times"), kMostTime)) {
      const size_t lane = entry.times.size();
      if (ok() && time > 0 && entry.ran_by[lane] == 0) fail("has a time of a lane without a part");
      took_part |= time > 0;
      entry.times.push_back(static_cast<Nanos>(time));
    }
    if (!took_part) fail("has no time of any lane");
  }

  void read_change(TableEntry& entry) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(rest("change"), absl::MaxSplits(' ', 2));
    if (words.size() < 3) return fail("is no change");
    TableEntry::Change change;
    change.windows = number(words[0], entry.windows);
    change.cause = named(words[1], kCauses);
    change.allocation = allocation(words[2]);
    entry.history.push_back(std::move(change));
    if (entry.history.size() > std::min<uint64_t>(TableEntry::kHistory, entry.changes)) {
      fail("has more changes than there were");
    }
  }

  absl::string_view name_;
  std::vector<absl::string_view> lines_;
  size_t next_ = 0;  // line
  size_t lanes_ = 0;
  absl::Status status_;
};

absl::Status write_all(int file, absl::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
    text.remove_prefix(static_cast<size_t>(written));
  }
  // Mode 0644, so that others may read the file. It is on disk before it is renamed.
  if (fchmod(file, S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH) != 0 || fsync(file) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

}  // namespace

std::string format_table(const DataLengthTable& table) {
  const auto parts = [](const Allocation& allocation) { return absl::StrJoin(allocation, " "); };
  std::string out = absl::StrCat(kTitle, "\nlanes ", table.lanes.size(), "\n");
  for (const std::string& lane : table.lanes) {
    absl::StrAppend(&out, "lane ", absl::CEscape(lane), "\n");
  }
  for (const auto& [size_class, entry] : table.entries) {
    if (entry.windows == 0) continue;
    absl::StrAppend(&out, "class ", size_class, "\nstate ", name_of(entry.state), "\nparts ",
                    parts(entry.allocation),
                    entry.algorithm == Algorithm::kAuto ? "" : "\nalgorithm ",
                    entry.algorithm == Algorithm::kAuto ? "" : name_of(entry.algorithm),
                    "\nwindows ", entry.windows, "\nbytes ", entry.bytes, "\n");
    absl::StrAppend(&out, "ran-by ", parts(entry.ran_by), "\ntimes ",
                    absl::StrJoin(entry.times, " "), "\nchanges ", entry.changes, "\n");
    for (const TableEntry::Change& change : entry.history) {
      absl::StrAppend(&out, "change ", change.windows, " ", name_of(change.cause), " ",
                      parts(change.allocation), "\n");
    }
  }
  return out + "end\n";
}

absl::StatusOr<DataLengthTable> parse_table(absl::string_view text, absl::string_view name) {
  Parser parser(text, name);
  DataLengthTable table = parser.table();
  if (!parser.status().ok()) return parser.status();
  return table;
}

absl::Status save_table(const DataLengthTable& table, const std::string& path) {
  std::string temporary = path + ".XXXXXX";
  const int file = above_standard(mkostemp(temporary.data(), O_CLOEXEC));
  if (file < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot save the data length table as ", path));
  }
  absl::Cleanup remove = [&] { unlink(temporary.c_str()); };
  absl::Status written = write_all(file, format_table(table), temporary);
  close(file);
  if (!written.ok()) return written;
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot save the data length table as ", path));
  }
  std::move(remove).Cancel();
  return absl::OkStatus();
}

absl::StatusOr<DataLengthTable> load_table(const std::string& path) {
  const std::optional<std::string> text = read_file(path, kLargest + 1);
  if (!text.has_value()) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the data length table ", path));
  }
  if (text->size() > kLargest) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data length table ", path, " is over ", kLargest, " bytes long"));
  }
  return parse_table(*text, path);
}

}  // namespace nezha
