// SPDX-License-Identifier: Apache-2.0
// Reads a program's command line by a table of its options.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace nezha {

// A command line that cannot be carried out. The program exits with status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The reason why a setter refuses a value. The setter's caller knows where the value is from, and
// says so.
class BadValue : public UsageError {
 public:
  using UsageError::UsageError;
};

struct Option {
  char letter;        // 0: it has none
  std::string name;   // empty: the entry is only a heading of the help
  std::string value;  // what the help calls the value; empty: it takes none
  std::string help;
  std::function<void(const std::string&)> set;  // throws BadValue
};
using OptionTable = std::vector<Option>;

// What read_options() cannot read.
struct BadOption {
  const Option* option;  // null: no option is meant, or more than one
  bool needs_value;      // else the option, if there is one, takes none
  char letter;           // the unknown option's letter; 0: it is not named by a letter
  std::string word;      // the word on the command line
};

// Calls the setters of the options that the command line has, and returns the words that are not
// options. As with all of getopt_long's programs, a name may be abbreviated. Throws UsageError with
// what `describe` says, or with a BadValue of a setter behind the option's name and value.
std::vector<std::string> read_options(const OptionTable& table, int argc, char** argv,
                                      const std::function<std::string(const BadOption&)>& describe);

// Prints why the program cannot do what it is asked for, and returns its exit status.
int refuse_usage(const char* program, const UsageError& error);

}  // namespace nezha
