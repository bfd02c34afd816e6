// SPDX-License-Identifier: Apache-2.0
// The environment variables that nezha reads. One table, in environment.cc, declares all of them;
// nezha/environment.h prints it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nezha {

struct EnvironmentVariable {
  enum class Kind {
    kChoice,    // one of `choices`
    kNumber,    // a whole number, `least` to `most`
    kDuration,  // as absl::ParseDuration reads it, 1 ms to a year
    kList,      // names, separated by commas
    kNumbers,   // numbers of 0 or more, at least one positive, separated by commas
    kPath,      // the path of a file
    kLogFile,   // the path of a file, with LogFileName's placeholders
    kPorts,     // a range: PortRange
  };
  absl::string_view name = {};
  Kind kind = Kind::kChoice;
  absl::string_view default_value = {};  // empty: no default
  bool agreed = false;                   // it must be the same on all ranks
  absl::string_view help = {};
  std::vector<absl::string_view> choices = {};
  int64_t least = 0;
  int64_t most = 0;
};

const std::vector<EnvironmentVariable>& environment_table();

// Returns the variable's value, or "" if it is not set. Here and below, `name` must be in the
// table.
std::string environment_value(absl::string_view name);
// Returns the variable's value, or its default if it is not set or empty.
std::string environment(absl::string_view name);
// Returns the value of a whole number, or its default if the value is missing or not allowed.
int64_t environment_number(absl::string_view name);

// Returns an error if the process's environment has a NEZHA_ variable that the table lacks; it
// suggests the known one with a similar name, or lists all of them. It also returns an error if a
// known variable has a value that it may not have.
absl::Status check_environment();
// Returns OK if the variable may have this value; otherwise the error says which values it may
// have.
absl::Status check_value(absl::string_view name, absl::string_view value);

// These parse the values of the kinds.
absl::StatusOr<std::chrono::milliseconds> parse_duration(absl::string_view text);
absl::StatusOr<std::vector<double>> parse_numbers(absl::string_view text);
// A name begins with no digit: in tcp:eth0?cpus=0-3,8,tcp:eth1 there are two.
std::vector<std::string> parse_list(absl::string_view text);

}  // namespace nezha
