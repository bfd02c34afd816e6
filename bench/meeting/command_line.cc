// SPDX-License-Identifier: Apache-2.0
#include "bench/meeting/command_line.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/spelling.h"

namespace nezha::bench {
namespace {

std::string describe(const OptionTable& table, const BadOption& bad) {
  if (bad.option != nullptr) {
    return "--" + bad.option->name + (bad.needs_value ? " needs a value" : " takes no value");
  }
  if (bad.letter != 0) return std::string("unknown option -") + bad.letter;
  std::vector<std::string> known;
  for (const auto& entry : table) {
    if (!entry.name.empty()) known.push_back(entry.name);
  }
  const std::string name = bad.word.substr(0, bad.word.find('='));
  return "unknown option " + name + suggestion(name.substr(2), known, "--", "");
}

}  // namespace

std::vector<std::string> apply(const OptionTable& table, int argc, char** argv) {
  return read_options(table, argc, argv,
                      [&](const BadOption& bad) { return describe(table, bad); });
}

void from_environment(const char* name, const std::function<void(const std::string&)>& set) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return;
  try {
    set(text);
  } catch (const BadValue& error) {
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

}  // namespace nezha::bench
