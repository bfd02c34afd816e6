#include "context/record.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace nezha {
namespace {

constexpr absl::string_view kHeader = "nezha 1";
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
  if (key == "job") return set_id(record.job);
  if (key == "process") return set_id(record.process);
  if (key == "pid") return set_int(record.pid);
  if (key == "size") return set_int(record.size);
  if (key == "host") {
    record.host = std::string(value);
  } else if (key == "settings") {
    record.settings = std::string(value);
  } else if (key == "device") {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(value, absl::MaxSplits(' ', 1));
    record.devices[std::string(pair.first)] = std::string(pair.second);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unknown key '", key, "'"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Record::key(int rank) { return absl::StrCat("rank", rank); }

std::string Record::encode() const {
  std::string text =
      absl::StrCat(kHeader, "\njob ", job.str(), "\nprocess ", process.str(), "\nhost ", host,
                   "\npid ", pid, "\nsize ", size, "\nsettings ", settings, "\n");
  for (const auto& [rail, address] : devices) {
    absl::StrAppend(&text, "device ", rail, " ", address, "\n");
  }
  return text;
}

absl::StatusOr<Record> Record::decode(absl::string_view text) {
  if (text.size() > kMaxSize) {
    return absl::InvalidArgumentError(absl::StrCat("a record of ", text.size(), " bytes"));
  }
  Record record;
  bool first = true;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (first && line != kHeader) {
      return absl::FailedPreconditionError(absl::StrCat(
          "it begins with '", line.substr(0, 40), "' and not with '", kHeader,
          "': another program, or another version of nezha, uses the same store and prefix"));
    }
    if (!first) {
      const std::pair<absl::string_view, absl::string_view> pair =
          absl::StrSplit(line, absl::MaxSplits(' ', 1));
      if (absl::Status status = set(record, pair.first, pair.second); !status.ok()) return status;
    }
    first = false;
  }
  if (first || record.process == UniqueId()) {
    return absl::InvalidArgumentError("a record that names no process");
  }
  return record;
}

}  // namespace nezha
