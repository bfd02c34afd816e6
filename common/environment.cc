#include "common/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nezha {
namespace {

size_t edit_distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

const EnvironmentVariable* find(absl::string_view name) {
  for (const auto& variable : environment_table()) {
    if (variable.name == name) return &variable;
  }
  return nullptr;
}

}  // namespace

const std::vector<EnvironmentVariable>& environment_table() {
  static const auto& table = *new std::vector<EnvironmentVariable>{
      {"NEZHA_LOG",
       "warning",
       "the log's level",
       {"trace", "debug", "info", "warning", "error", "critical", "off"}},
      {"NEZHA_CHECK_POINTERS",
       "0",
       "1: before an operation starts, all its memory is checked: unmapped, protected, a device's",
       {"0", "1"}},
  };
  return table;
}

std::string environment(absl::string_view name) {
  const EnvironmentVariable* variable = find(name);
  const char* value = std::getenv(std::string(name).c_str());
  if (value != nullptr && *value != '\0') return value;
  return variable == nullptr ? std::string() : std::string(variable->default_value);
}

absl::Status check_environment() {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    absl::string_view name(*entry);
    name = name.substr(0, name.find('='));
    if (!absl::StartsWith(name, "NEZHA_") || find(name) != nullptr) continue;
    const auto& table = environment_table();
    const auto nearest =
        std::min_element(table.begin(), table.end(), [&](const auto& a, const auto& b) {
          return edit_distance(a.name, name) < edit_distance(b.name, name);
        });
    return absl::InvalidArgumentError(
        absl::StrCat("unknown environment variable ", name, "; did you mean ", nearest->name, "?"));
  }
  for (const EnvironmentVariable& variable : environment_table()) {
    const std::string value = environment(variable.name);
    const auto& values = variable.values;
    if (values.empty() || std::find(values.begin(), values.end(), value) != values.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("the environment variable ", variable.name,
                                                   " is '", value, "'; it may be ",
                                                   absl::StrJoin(values, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace nezha
