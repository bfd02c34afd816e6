// SPDX-License-Identifier: Apache-2.0
#include "context/record.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "transport/wire.h"

namespace nezha {
namespace {

constexpr absl::string_view kHeader = "nezha 1";
constexpr absl::string_view kEnd = "end";
constexpr size_t kMaxSize = 16 << 10;

absl::Status set(Record& record, absl::string_view key, absl::string_view value) {
  const auto set_id = [&](UniqueId& id) {
    const auto parsed = UniqueId::parse(value);
    if (parsed.ok()) id = *parsed;
    return parsed.status();
  };
  const auto set_int = [&](int& number) {
    return absl::SimpleAtoi(value, &number) && number >= 0
               ? absl::OkStatus()
               : absl::InvalidArgumentError(absl::StrCat("'", value, "' is no number"));
  };
  const auto set_entry = [&](std::map<std::string, std::string>& map) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(value, absl::MaxSplits(' ', 1));
    const bool is_name = !pair.first.empty() && pair.first.size() <= wire::kMaxRailName;
    if (!is_name || pair.second.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", value, "' is not the name of a rail and its value"));
    }
    map[std::string(pair.first)] = std::string(pair.second);
    return absl::OkStatus();
  };
  if (key == "job") return set_id(record.job);
  if (key == "process") return set_id(record.process);
  if (key == "publication") return set_id(record.publication);
  if (key == "device") return set_entry(record.devices);
  if (key == "interface") return set_entry(record.interfaces);
  if (key == "pid") return set_int(record.pid);
  if (key == "flare" && (value == Record::kAlone || value == Record::kBesideOthers)) {
    record.flare_rail = std::string(value);
    return absl::OkStatus();
  }
  if (key == "size") return set_int(record.size);
  if (key == "host") {
    record.host = std::string(value);
  } else if (key == "cores") {
    record.cores = std::string(value);
  } else if (key == "settings") {
    record.settings = std::string(value);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unknown key '", key, "'"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Record::describe(int rank) const {
  const std::string name = absl::StrCat("rank ", rank, " of ", size);
  return host.empty() ? name : absl::StrCat(name, " (", host, ", pid ", pid, ")");
}

std::string Record::key(int rank) { return absl::StrCat("rank", rank); }

std::string Record::encode() const {
  std::string text = absl::StrCat(kHeader, "\njob ", job.str(), "\nprocess ", process.str(),
                                  "\npublication ", publication.str(), "\nhost ", host, "\npid ",
                                  pid, "\nsize ", size, "\nsettings ", settings, "\n");
  if (!cores.empty()) absl::StrAppend(&text, "cores ", cores, "\n");
  if (!flare_rail.empty()) absl::StrAppend(&text, "flare ", flare_rail, "\n");
  for (const auto& [rail, address] : devices) {
    absl::StrAppend(&text, "device ", rail, " ", address, "\n");
  }
  for (const auto& [rail, interface] : interfaces) {
    absl::StrAppend(&text, "interface ", rail, " ", interface, "\n");
  }
  absl::StrAppend(&text, kEnd, "\n");
  return text;
}

ChosenInterfaces Record::rails() const {
  ChosenInterfaces rails;
  for (const auto& [rail, address] : devices) {
    const auto chosen = interfaces.find(rail);
    rails[rail] = chosen == interfaces.end() ? "" : chosen->second;
  }
  return rails;
}

absl::StatusOr<Record> Record::decode(absl::string_view text) {
  if (text.size() > kMaxSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", text.size(), " bytes; the limit is ", kMaxSize));
  }
  Record record;
  bool first = true;
  bool is_whole = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (first && line != kHeader) {
      return absl::FailedPreconditionError(absl::StrCat(
          "it begins with '", line.substr(0, 40), "' and not with '", kHeader,
          "': another program, or another version of nezha, uses the same store and prefix"));
    }
    if (line == kEnd) is_whole = true;
    if (is_whole) break;
    if (!first) {
      const std::pair<absl::string_view, absl::string_view> pair =
          absl::StrSplit(line, absl::MaxSplits(' ', 1));
      if (absl::Status status = set(record, pair.first, pair.second); !status.ok()) return status;
    }
    first = false;
  }
  if (!is_whole) return absl::InvalidArgumentError("its end is missing");
  if (record.process == UniqueId()) {
    return absl::InvalidArgumentError("it names no process");
  }
  return record;
}

}  // namespace nezha
