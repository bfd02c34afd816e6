// SPDX-License-Identifier: Apache-2.0
#include "rails/streams.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "transport/rail_kind.h"

namespace nezha {
namespace {

constexpr const char* kOption = "streams";
constexpr double kOfStream = 12500;  // Mbit/s
constexpr int kMostChosen = 8;       // rails in all: a process may open others, up to kMaxRails

std::string text_of(const RailUri& uri) {
  const std::string options = absl::StrJoin(uri.options, "&", absl::PairFormatter("="));
  return absl::StrCat(uri.kind, ":", uri.interface, options.empty() ? "" : "?", options);
}

bool is_tcp(const absl::StatusOr<RailUri>& uri) { return uri.ok() && uri->kind == "tcp"; }

}  // namespace

std::vector<std::string> choose_streams(const std::vector<std::string>& uris, int threads,
                                        absl::FunctionRef<int(const std::string&)> speed_of) {
  std::map<std::string, int> rails_of;
  for (const std::string& text : uris) {
    const auto uri = RailUri::parse(text);
    if (is_tcp(uri)) ++rails_of[uri->interface];
  }
  const int most = std::min(threads, kMostChosen) / std::max(1, static_cast<int>(uris.size()));
  std::vector<std::string> chosen = uris;
  for (std::string& text : chosen) {
    auto uri = RailUri::parse(text);
    if (!is_tcp(uri) || uri->options.contains(kOption) || rails_of[uri->interface] > 1) continue;
    const auto wanted = static_cast<int>(std::lround(speed_of(uri->interface) / kOfStream));
    const int streams = std::min({wanted, most, kMostStreams});
    if (streams < 2) continue;
    uri->options[kOption] = absl::StrCat(streams);
    text = text_of(*uri);
  }
  return chosen;
}

absl::StatusOr<std::vector<std::string>> expand_streams(const std::vector<std::string>& uris) {
  std::vector<std::string> all;
  for (const std::string& text : uris) {
    auto uri = RailUri::parse(text);
    if (!is_tcp(uri) || !uri->options.contains(kOption)) {
      all.push_back(text);
      continue;
    }
    int streams = 0;
    const std::string value = uri->options[kOption];
    if (!absl::SimpleAtoi(value, &streams) || streams < 1 || streams > kMostStreams) {
      return bad_rail(
          text, absl::StrCat("'", kOption, "=", value, "' is no number from 1 to ", kMostStreams));
    }
    uri->options.erase(kOption);
    const auto named = uri->options.find("rail");
    const std::string name = named == uri->options.end() ? uri->interface : named->second;
    all.push_back(text_of(*uri));
    for (int i = 2; i <= streams; ++i) {
      uri->options["rail"] = absl::StrCat(name, "+", i);
      all.push_back(text_of(*uri));
    }
  }
  return all;
}

}  // namespace nezha
