// SPDX-License-Identifier: Apache-2.0
// Finds the name that a user may have meant by one that is not known. It is in a header alone
// because the programs in bench/ can only use the library's public symbols.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace nezha {

// Returns how many letters must be inserted, removed or replaced to get from `a` to `b`
// (Levenshtein distance).
inline size_t edit_distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (const char letter : a) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (letter == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// Returns the nearest of the known names, of which there is at least one; nothing if more than a
// third of the letters would be wrong.
inline std::optional<absl::string_view> near_name(absl::string_view name,
                                                  const std::vector<absl::string_view>& known) {
  const auto nearest =
      *std::min_element(known.begin(), known.end(), [&](absl::string_view a, absl::string_view b) {
        return edit_distance(name, a) < edit_distance(name, b);
      });
  if (3 * edit_distance(name, nearest) > std::max(name.size(), nearest.size())) return {};
  return nearest;
}

}  // namespace nezha
