// SPDX-License-Identifier: Apache-2.0
// Error texts for shares that are not possible. They are in a header alone because the programs in
// bench/, which check their command lines before ranks meet, can only use the library's public
// symbols.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace nezha {

// `shares` names the source of the shares. Only slices take shares.
inline std::string shares_without_slices(absl::string_view shares, absl::string_view plan) {
  return absl::StrCat(shares, " with the plan ", plan,
                      ": only slices take shares; name the plan slice, or give no shares");
}

// `rails` counts the rails that consist of links. What a switch carries is no slice.
inline std::string shares_do_not_fit(absl::string_view shares, size_t parts, size_t rails) {
  return absl::StrCat(shares, ": ", parts, parts == 1 ? " part" : " parts", " for ", rails,
                      rails == 1 ? " rail" : " rails",
                      "; give one for each, in the rails' order, which is the same on every rank "
                      "(a flare rail takes none)");
}

}  // namespace nezha
