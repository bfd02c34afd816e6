// SPDX-License-Identifier: Apache-2.0
// The options of a program's command line: a table of them, which is also the help.
#pragma once

#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace nezha::bench {

// A command line that cannot be carried out. The program exits with status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Option {
  char letter;        // 0: it has none
  std::string name;   // empty: the entry is only a heading of the help
  std::string value;  // what the help calls the value; empty: it takes none
  std::string help;
  std::function<void(const std::string&)> set;
};
using OptionTable = std::vector<Option>;

// Calls the setters of the options that the command line has, and returns the words that are not
// options. Throws UsageError, which names the option.
std::vector<std::string> apply(const OptionTable& table, int argc, char** argv);

// Calls `set` with the value of an environment variable that is set and not empty. A UsageError of
// the setter is thrown on with the variable's name.
void from_environment(const char* name, const std::function<void(const std::string&)>& set);

// Prints the table's part of the help.
void print_options(const OptionTable& table);

// "; did you mean NAME?" with the nearest known name, or nothing if none is near.
std::string suggestion(const std::string& name, const std::vector<std::string>& known,
                       absl::string_view before, absl::string_view after);

// The setters throw UsageError with only the reason; their caller knows the option's name.
template <typename T>
T to_number(const std::string& text, T least, T most = std::numeric_limits<T>::max()) {
  T number{};
  if (absl::SimpleAtoi(text, &number) && number >= least && number <= most) return number;
  std::string wanted = absl::StrCat("a whole number of at least ", least);
  if (most != std::numeric_limits<T>::max()) absl::StrAppend(&wanted, " and at most ", most);
  throw UsageError("not " + wanted);
}

absl::Duration to_duration(const std::string& text);
// Splits names as in NEZHA_RAILS: no name begins with a digit, so tcp:eth0?cpus=0-3,8,tcp:eth1 has
// two.
std::vector<std::string> to_names(const std::string& text);
// Checks that the text is a range of ports, and returns it.
std::string to_ports(const std::string& text);

}  // namespace nezha::bench
