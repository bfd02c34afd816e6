// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/switchd/session_spec.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace nezha::flare {
namespace {

using Words = std::vector<absl::string_view>;

// `place` is the word's place in its line, from 0. The word may be a misplaced key, and errors are
// printed, so they do not repeat it.
absl::Status not_a(absl::string_view what, size_t place) {
  return absl::InvalidArgumentError(absl::StrCat("word ", place + 1, " is no ", what));
}

template <typename T>
absl::Status read_number(const Words& words, size_t place, T* number) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(words[place], &value) || value > std::numeric_limits<T>::max()) {
    return not_a(absl::StrCat("number from 0 to ", uint64_t{std::numeric_limits<T>::max()}), place);
  }
  *number = static_cast<T>(value);
  return absl::OkStatus();
}

absl::Status read_ranks(const Words& words, size_t place, RankRange* ranks) {
  const Words ends = absl::StrSplit(words[place], absl::MaxSplits('-', 1));
  uint16_t last = 0;
  absl::Status status = read_number(ends, 0, &ranks->first);
  if (status.ok()) status = read_number(ends, ends.size() - 1, &last);
  if (!status.ok() || last < ranks->first || last - ranks->first == UINT16_MAX) {
    return not_a("rank, nor ranks as 1-4", place);
  }
  ranks->count = static_cast<uint16_t>(last - ranks->first + 1);
  return absl::OkStatus();
}

absl::Status read_address(const Words& words, size_t place, Address* address) {
  absl::StatusOr<Address> parsed = Address::parse(words[place]);
  if (!parsed.ok()) return not_a("address and port", place);
  *address = *parsed;
  return absl::OkStatus();
}

absl::Status read_key(const Words& words, size_t place, Key* key) {
  absl::StatusOr<Key> parsed = parse_key(words[place]);
  if (!parsed.ok()) return not_a("key of 64 hex digits", place);
  *key = *parsed;
  return absl::OkStatus();
}

absl::Status read_child(const Words& words, SessionSpec& spec) {
  RankRange ranks;
  Address address;
  if (absl::Status status = read_address(words, 1, &address); !status.ok()) return status;
  if (absl::Status status = read_ranks(words, 2, &ranks); !status.ok()) return status;
  spec.children.push_back(address);
  spec.table.children.push_back(ranks);
  return absl::OkStatus();
}

absl::Status read_group(const Words& words, SessionSpec& spec) {
  Address group;
  if (absl::Status status = read_address(words, 1, &group); !status.ok()) return status;
  if (!group.is_multicast()) return not_a("multicast address", 1);
  spec.group = group;
  return absl::OkStatus();
}

absl::Status read_parent(const Words& words, SessionSpec& spec) {
  ParentSpec parent;
  if (absl::Status status = read_address(words, 1, &parent.address); !status.ok()) return status;
  if (absl::Status status = read_number(words, 2, &parent.child); !status.ok()) return status;
  if (absl::Status status = read_key(words, 3, &parent.key); !status.ok()) return status;
  if (parent.child >= kMaxChildren) {
    return absl::InvalidArgumentError(
        absl::StrCat("a switch has at most ", kMaxChildren, " children: 0 to ", kMaxChildren - 1));
  }
  spec.parent = parent;
  spec.table.is_root = false;
  return absl::OkStatus();
}

// A word that a line may begin with.
struct Keyword {
  absl::string_view name;
  size_t values;
  bool is_needed;
  absl::Status (*read)(const Words& words, SessionSpec& spec);
};

constexpr Keyword kKeywords[] = {
    {"session", 1, true,
     [](const Words& words, SessionSpec& spec) { return read_number(words, 1, &spec.session); }},
    {"generation", 1, true,
     [](const Words& words, SessionSpec& spec) { return read_number(words, 1, &spec.generation); }},
    {"key", 1, true,
     [](const Words& words, SessionSpec& spec) { return read_key(words, 1, &spec.key); }},
    {"window", 1, true,
     [](const Words& words, SessionSpec& spec) {
       return read_number(words, 1, &spec.table.window);
     }},
    {"payload", 1, true,
     [](const Words& words, SessionSpec& spec) {
       return read_number(words, 1, &spec.table.payload);
     }},
    {"reproducible", 0, false,
     [](const Words&, SessionSpec& spec) {
       spec.table.reproducible = true;
       return absl::OkStatus();
     }},
    {"buffers", 1, false,
     [](const Words& words, SessionSpec& spec) {
       uint8_t buffers = 0;
       absl::Status status = read_number(words, 1, &buffers);
       spec.table.buffers = buffers;
       return status;
     }},
    {"child", 2, true, read_child},
    {"group", 1, false, read_group},
    {"parent", 3, false, read_parent},
};

absl::Status read_line(absl::string_view line, SessionSpec& spec,
                       std::set<absl::string_view>& seen) {
  line = line.substr(0, line.find('#'));
  const Words words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.empty()) return absl::OkStatus();
  const auto* keyword = std::find_if(std::begin(kKeywords), std::end(kKeywords),
                                     [&](const Keyword& known) { return known.name == words[0]; });
  if (keyword == std::end(kKeywords)) {
    return absl::InvalidArgumentError("unknown word 1; nezha-switch --help says what lines have");
  }
  if (words.size() != keyword->values + 1) {
    return absl::InvalidArgumentError(absl::StrCat("'", keyword->name, "' takes ", keyword->values,
                                                   " values, not ", words.size() - 1));
  }
  if (!seen.insert(keyword->name).second && keyword->name != "child") {
    return absl::InvalidArgumentError(absl::StrCat("'", keyword->name, "' comes a second time"));
  }
  return keyword->read(words, spec);
}

}  // namespace

absl::StatusOr<SessionSpec> parse_session(absl::string_view text) {
  SessionSpec spec;
  std::set<absl::string_view> seen;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::Status status = read_line(line, spec, seen); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", status.message()));
    }
  }
  for (const Keyword& keyword : kKeywords) {
    if (keyword.is_needed && !seen.contains(keyword.name)) {
      return absl::InvalidArgumentError(absl::StrCat("there is no line '", keyword.name, "'"));
    }
  }
  if (absl::Status status = check(spec.table); !status.ok()) return status;
  return spec;
}

}  // namespace nezha::flare
