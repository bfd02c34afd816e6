// SPDX-License-Identifier: Apache-2.0
#include "bench/meeting/command_line.h"

#include <getopt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "common/port_range.h"
#include "common/spelling.h"

namespace nezha::bench {
namespace {

constexpr int kFirstLongOnly = 256;  // getopt's values of options without a letter

int getopt_value(const OptionTable& table, size_t i) {
  return table[i].letter != 0 ? table[i].letter : kFirstLongOnly + static_cast<int>(i);
}

const Option* find(const OptionTable& table, int value) {
  for (size_t i = 0; i < table.size(); ++i) {
    if (getopt_value(table, i) == value) return &table[i];
  }
  return nullptr;
}

[[noreturn]] void refuse(const OptionTable& table, int reason, const char* word) {
  const Option* option = find(table, optopt);
  if (reason == ':' && option != nullptr) throw UsageError("--" + option->name + " needs a value");
  if (option != nullptr) throw UsageError("--" + option->name + " takes no value");
  if (optopt != 0) throw UsageError(std::string("unknown option -") + static_cast<char>(optopt));
  std::vector<std::string> known;
  for (const auto& entry : table) {
    if (!entry.name.empty()) known.push_back(entry.name);
  }
  const std::string name(word, std::strcspn(word, "="));
  throw UsageError("unknown option " + name + suggestion(name.substr(2), known, "--", ""));
}

}  // namespace

std::vector<std::string> apply(const OptionTable& table, int argc, char** argv) {
  std::string letters = ":";  // so that a missing value differs from an unknown option
  std::vector<option> longs;
  for (size_t i = 0; i < table.size(); ++i) {
    const bool takes_value = !table[i].value.empty();
    if (table[i].letter != 0) letters += std::string(1, table[i].letter) + (takes_value ? ":" : "");
    if (table[i].name.empty()) continue;
    longs.push_back({table[i].name.c_str(), takes_value ? required_argument : no_argument, nullptr,
                     getopt_value(table, i)});
  }
  longs.push_back({});
  opterr = 0;
  for (int value;
       (value = getopt_long(argc, argv, letters.c_str(), longs.data(), nullptr)) != -1;) {
    const Option* option = find(table, value);
    if (option == nullptr) refuse(table, value, argv[optind - 1]);
    const std::string text = optarg == nullptr ? "" : optarg;
    try {
      option->set(text);
    } catch (const UsageError& error) {
      throw UsageError("--" + option->name + " '" + text + "': " + error.what());
    }
  }
  return {argv + optind, argv + argc};
}

void from_environment(const char* name, const std::function<void(const std::string&)>& set) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return;
  try {
    set(text);
  } catch (const UsageError& error) {
    throw UsageError(std::string(name) + "='" + text + "' in the environment: " + error.what());
  }
}

void print_options(const OptionTable& table) {
  for (const auto& option : table) {
    if (option.name.empty()) {
      std::printf("\n%s:\n", option.help.c_str());
      continue;
    }
    const std::string letter =
        option.letter == 0 ? "    " : std::string{'-', option.letter, ',', ' '};
    const std::string left =
        letter + "--" + option.name + (option.value.empty() ? "" : " ") + option.value;
    std::printf("  %-28s %s\n", left.c_str(), option.help.c_str());
  }
}

std::string suggestion(const std::string& name, const std::vector<std::string>& known,
                       absl::string_view before, absl::string_view after) {
  const auto meant = near_name(name, {known.begin(), known.end()});
  return meant ? absl::StrCat("; did you mean ", before, *meant, after, "?") : "";
}

absl::Duration to_duration(const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration)) {
    throw UsageError("not a duration, such as 500ms or 2s");
  }
  if (duration <= absl::ZeroDuration()) throw UsageError("a duration must be positive");
  if (duration > absl::Hours(24)) throw UsageError("a duration is at most a day, 24h");
  return duration;
}

std::vector<std::string> to_names(const std::string& text) {
  std::vector<std::string> names;
  for (const auto part : absl::StrSplit(text, ',')) {
    if (!names.empty() && !part.empty() && absl::ascii_isdigit(part.front())) {
      absl::StrAppend(&names.back(), ",", part);
    } else {
      names.emplace_back(part);
    }
  }
  if (std::count(names.begin(), names.end(), "") > 0) throw UsageError("an empty name");
  return names;
}

std::string to_ports(const std::string& text) {
  if (text.empty() || !PortRange::parse(text)) {
    throw UsageError(std::string("not ") + PortRange::kMayBe);
  }
  return text;
}

}  // namespace nezha::bench
