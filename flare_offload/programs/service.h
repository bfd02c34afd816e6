// SPDX-License-Identifier: Apache-2.0
// Functions that nezha-switch and nezha-manager have in common. Each program serves until a signal
// ends it.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/command_line/command_line.h"
#include "common/net/address.h"

namespace nezha::flare {

// Calls the setters of the options that the command line has. --help and --version are added to
// the table: they print `help` or the version, and end the program. Throws UsageError.
void read_service_options(const char* program, const std::string& help, OptionTable table, int argc,
                          char** argv);

// Returns the number that the text has, from 1 to `most`. Throws BadValue, which says what is
// wanted: `range` and `most`.
int to_number(const std::string& text, absl::string_view range, int most);

// Throws UsageError with the option's name.
net::Address to_address(absl::string_view option, const std::string& text);

// Returns a descriptor that receives SIGTERM, SIGINT and SIGUSR1, so that they interrupt nothing,
// not even threads that start later.
absl::StatusOr<int> receive_signals();

// Prints the line at once.
void print(const std::string& line);

// Calls `serve`, prints its error if it returns or throws one, and returns the exit status.
int run_service(const char* program, const std::function<absl::Status()>& serve);

}  // namespace nezha::flare
