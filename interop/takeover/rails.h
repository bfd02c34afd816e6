// SPDX-License-Identifier: Apache-2.0
// Lists of rails, as users write them.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace nezha::takeover {

// Returns whether NEZHA_RAILS names any.
inline bool environment_names_rails() {
  const char* rails = std::getenv("NEZHA_RAILS");
  return rails != nullptr && *rails != '\0';
}

// Splits a list at its commas.
inline std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  std::istringstream rest(list);
  for (std::string item; std::getline(rest, item, ',');) items.push_back(item);
  return items;
}

}  // namespace nezha::takeover
