// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/shares.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/meeting/option_values.h"

namespace nezha::bench {

std::vector<double> to_shares(const std::string& text) {
  std::vector<double> shares = to_numbers(text, true);
  if (std::all_of(shares.begin(), shares.end(), [](double share) { return share == 0; })) {
    throw BadValue(absl::StrCat("'", text, "': no share is positive"));
  }
  return shares;
}

std::string to_text(const std::vector<double>& shares) {
  constexpr auto kLossless = [](std::string* out, double share) {
    absl::StrAppendFormat(out, "%.17g", share);
  };
  return absl::StrJoin(shares, ",", kLossless);
}

bool has_auto(const std::vector<std::string>& rails) {
  return rails.empty() || is_one_of("auto", rails);
}

size_t slices_of(const std::vector<std::string>& rails) {
  const auto is_link = [](const auto& rail) { return !absl::StartsWith(rail, "flare:"); };
  return static_cast<size_t>(
      std::max<std::ptrdiff_t>(1, std::count_if(rails.begin(), rails.end(), is_link)));
}

bool fit(const std::vector<double>& shares, const std::vector<std::string>& rails) {
  return has_auto(rails) || shares.size() == slices_of(rails);
}

std::string shares_text(const Options& options) {
  if (!options.shares.empty()) return absl::StrJoin(options.shares, ",");
  if (options.plan != "slice") return "not given";
  const bool learns = !options.policy.empty() && options.policy != "none";
  return learns ? "learned" : absl::StrJoin(std::vector<int>(slices_of(options.rails), 1), ",");
}

}  // namespace nezha::bench
