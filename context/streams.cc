// SPDX-License-Identifier: Apache-2.0
#include "context/streams.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "transport/rail_kind.h"

namespace nezha {
namespace {

constexpr const char* kOption = "streams";

std::string text_of(const RailUri& uri) {
  const std::string options = absl::StrJoin(uri.options, "&", absl::PairFormatter("="));
  return absl::StrCat(uri.kind, ":", uri.interface, options.empty() ? "" : "?", options);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> expand_streams(const std::vector<std::string>& uris) {
  std::vector<std::string> all;
  for (const std::string& text : uris) {
    auto uri = RailUri::parse(text);
    if (!uri.ok() || uri->kind != "tcp" || !uri->options.contains(kOption)) {
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
