// SPDX-License-Identifier: Apache-2.0
// The options of a benchmark program, or of nezha-check: a table of them, which is also the help.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
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

// Returns "; did you mean NAME?" with the nearest known name, or nothing if none is near.
std::string suggestion(const std::string& name, const std::vector<std::string>& known,
                       absl::string_view before, absl::string_view after);

}  // namespace nezha::bench
