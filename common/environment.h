// SPDX-License-Identifier: Apache-2.0
// The environment variables nezha reads: all of them are declared in one table, environment.cc.
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
    kNumbers,   // positive numbers, separated by commas
    kPath,      // of a file
    kLogFile,   // likewise, with what LogFileName replaces
    kPorts,     // a range: PortRange
  };
  absl::string_view name = {};
  Kind kind = Kind::kChoice;
  absl::string_view default_value = {};  // empty: it has none
  bool agreed = false;                   // the same on all ranks
  absl::string_view help = {};
  std::vector<absl::string_view> choices = {};
  int64_t least = 0;
  int64_t most = 0;
};

const std::vector<EnvironmentVariable>& environment_table();

// `name` must be in the table, here and below. The variable's value; "" if it is not set.
std::string environment_value(absl::string_view name);
// Likewise, but its default if it is not set or empty.
std::string environment(absl::string_view name);
// Of a whole number; its default also where the value is none that it may have.
int64_t environment_number(absl::string_view name);

// An error if the process's environment has a NEZHA_ variable that the table lacks; it names the
// known one that is near, or all. Likewise if a known one has a value that it may not have.
absl::Status check_environment();
// Whether the variable may have this value. The error says what it may be.
absl::Status check_value(absl::string_view name, absl::string_view value);

// The kinds' values.
absl::StatusOr<std::chrono::milliseconds> parse_duration(absl::string_view text);
absl::StatusOr<std::vector<double>> parse_numbers(absl::string_view text);
// A name begins with no digit: in tcp:eth0?cpus=0-3,8,tcp:eth1 there are two.
std::vector<std::string> parse_list(absl::string_view text);

}  // namespace nezha
