// SPDX-License-Identifier: Apache-2.0
// The options of a benchmark program, or of nezha-check: a table of them, which is also the help.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/command_line/command_line.h"

namespace nezha::bench {

// Calls the setters of the options that the command line has, and returns the words that are not
// options. Throws UsageError, which names the option.
std::vector<std::string> apply(const OptionTable& table, int argc, char** argv);

// Calls `set` with the value of an environment variable that is set and not empty. Throws
// UsageError with the variable's name if the setter refuses the value.
void from_environment(const char* name, const std::function<void(const std::string&)>& set);

// Prints the table's part of the help.
void print_options(const OptionTable& table);

// "; did you mean NAME?" with the nearest known name, or nothing if none is near.
std::string suggestion(const std::string& name, const std::vector<std::string>& known,
                       absl::string_view before, absl::string_view after);

// These throw BadValue.
template <typename T>
T to_number(const std::string& text, T least, T most = std::numeric_limits<T>::max()) {
  T number{};
  if (absl::SimpleAtoi(text, &number) && number >= least && number <= most) return number;
  std::string wanted = absl::StrCat("a whole number of at least ", least);
  if (most != std::numeric_limits<T>::max()) absl::StrAppend(&wanted, " and at most ", most);
  throw BadValue("not " + wanted);
}

absl::Duration to_duration(const std::string& text);
// Splits names as in NEZHA_RAILS: no name begins with a digit, so tcp:eth0?cpus=0-3,8,tcp:eth1 has
// two.
std::vector<std::string> to_names(const std::string& text);
// Checks that the text is a range of ports, and returns it.
std::string to_ports(const std::string& text);

}  // namespace nezha::bench
