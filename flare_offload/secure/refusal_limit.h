// SPDX-License-Identifier: Apache-2.0
// Limits which refused connections are logged: whoever floods a process with connections does not
// flood the log.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace nezha::flare {

// Allows one line a minute for each refused peer, and for no more than kMost of them.
class RefusalLimit {
 public:
  static constexpr size_t kMost = 16;
  static constexpr Nanos kPeriod = 60 * kSecond;

  // `who` is refused at that time. If that is to be logged, returns how many refusals have not been
  // logged since the last one that was. Otherwise returns nothing.
  std::optional<size_t> tell_of(const std::string& who, Nanos time) {
    if (told_.empty() || time - begin_ >= kPeriod) {
      begin_ = time;
      told_.clear();
    }
    if (told_.size() < kMost && told_.insert(who).second) return std::exchange(untold_, 0);
    ++untold_;
    return std::nullopt;
  }

 private:
  Nanos begin_ = 0;  // the beginning of the minute
  std::set<std::string> told_;
  size_t untold_ = 0;
};

// Returns what a line adds about the refusals that were not logged, or "" if there were none.
inline std::string and_others(size_t untold) {
  return untold == 0 ? "" : absl::StrCat(" (", untold, " more were refused since the line before)");
}

}  // namespace nezha::flare
