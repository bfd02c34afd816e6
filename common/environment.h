// The environment variables nezha reads: all of them are declared in one table, environment.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace nezha {

struct EnvironmentVariable {
  absl::string_view name;
  absl::string_view default_value;
  absl::string_view help;
  std::vector<absl::string_view> values;  // those it may have; empty: any
};

const std::vector<EnvironmentVariable>& environment_table();

// The variable's value, or its default if it is not set or empty. `name` must be in the table.
std::string environment(absl::string_view name);

// An error if the process's environment has a NEZHA_ variable that the table lacks; it names the
// nearest known one. Likewise if a known one has a value that it may not have.
absl::Status check_environment();

}  // namespace nezha
