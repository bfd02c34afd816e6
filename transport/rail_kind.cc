// SPDX-License-Identifier: Apache-2.0
#include "transport/rail_kind.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "transport/wire.h"

namespace nezha {

absl::StatusOr<RailUri> RailUri::parse(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits('?', 1));
  const std::pair<absl::string_view, absl::string_view> name =
      absl::StrSplit(halves.first, absl::MaxSplits(':', 1));
  RailUri uri;
  uri.kind = std::string(name.first);
  uri.interface = std::string(name.second);
  if (uri.kind.empty() || uri.interface.empty()) {
    return bad_rail(text, "not of the form KIND:INTERFACE, such as tcp:eth0");
  }
  for (const absl::string_view option : absl::StrSplit(halves.second, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(option, absl::MaxSplits('=', 1));
    if (!uri.options.emplace(std::string(pair.first), std::string(pair.second)).second) {
      return bad_rail(text, absl::StrCat("'", pair.first, "' is given twice"));
    }
  }
  return uri;
}

absl::Status bad_rail(absl::string_view uri, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("rail '", uri, "': ", why));
}

absl::Status check_rail_name(absl::string_view uri, const std::string& name) {
  const bool has_space = name.find_first_of(" \t\r\n") != std::string::npos;
  if (!name.empty() && name.size() <= wire::kMaxRailName && !has_space) return absl::OkStatus();
  return bad_rail(uri, absl::StrCat("a rail's name has 1 to ", wire::kMaxRailName,
                                    " characters and no spaces"));
}

}  // namespace nezha
