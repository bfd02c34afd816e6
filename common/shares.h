// SPDX-License-Identifier: Apache-2.0
// What is said of shares that cannot be. In a header alone: the programs in bench/, which look at
// their command lines before ranks meet, have nothing of the library's but its public symbols.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace nezha {

// `shares`: what has given them. Only slices take such.
inline std::string shares_without_slices(absl::string_view shares, absl::string_view plan) {
  return absl::StrCat(shares, " with the plan ", plan,
                      ": shares are given to slices alone; name the plan slice, or give no shares: "
                      "other plans learn theirs");
}

// `rails`: those of links. What a switch carries is no slice.
inline std::string shares_do_not_fit(absl::string_view shares, size_t parts, size_t rails) {
  return absl::StrCat(shares, ": ", parts, parts == 1 ? " part" : " parts", " for ", rails,
                      rails == 1 ? " rail" : " rails",
                      "; give one for each, in the rails' order, which is the same on every rank "
                      "(a flare rail takes none)");
}

}  // namespace nezha
