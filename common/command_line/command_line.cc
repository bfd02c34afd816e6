// SPDX-License-Identifier: Apache-2.0
#include "common/command_line/command_line.h"

#include <getopt.h>

#include <cstdio>

namespace nezha {
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

// Returns the options' letters, as getopt_long() takes them.
std::string letters_of(const OptionTable& table) {
  std::string letters = ":";  // so that a missing value differs from an unknown option
  for (const Option& each : table) {
    if (each.letter == 0) continue;
    letters += each.letter;
    if (!each.value.empty()) letters += ':';
  }
  return letters;
}

// Returns the options' names, as getopt_long() takes them. They refer to the table.
std::vector<option> names_of(const OptionTable& table) {
  std::vector<option> names;
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].name.empty()) continue;
    names.push_back({table[i].name.c_str(),
                     table[i].value.empty() ? no_argument : required_argument, nullptr,
                     getopt_value(table, i)});
  }
  names.push_back({});
  return names;
}

void set(const Option& option, const std::string& text) {
  try {
    option.set(text);
  } catch (const BadValue& error) {
    throw UsageError("--" + option.name + " '" + text + "': " + error.what());
  }
}

}  // namespace

std::vector<std::string> read_options(
    const OptionTable& table, int argc, char** argv,
    const std::function<std::string(const BadOption&)>& describe) {
  const std::string letters = letters_of(table);
  const std::vector<option> names = names_of(table);
  opterr = 0;
  optind = 0;  // another command line may have been read before
  int value = 0;
  while ((value = getopt_long(argc, argv, letters.c_str(), names.data(), nullptr)) != -1) {
    if (const Option* option = find(table, value); option != nullptr) {
      set(*option, optarg == nullptr ? "" : optarg);
      continue;
    }
    const Option* meant = find(table, optopt);
    const auto letter = static_cast<char>(meant == nullptr ? optopt : 0);
    throw UsageError(describe({meant, value == ':', letter, argv[optind - 1]}));
  }
  return {argv + optind, argv + argc};
}

int refuse_usage(const char* program, const UsageError& error) {
  std::fprintf(stderr, "%s: %s\nTry %s --help.\n", program, error.what(), program);
  return 2;
}

}  // namespace nezha
