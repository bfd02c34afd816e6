// SPDX-License-Identifier: Apache-2.0
#include "context/lost_ranks.h"

#include <set>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace nezha {
namespace {

constexpr char kPayload[] = "nezha.lost_ranks";  // the rank numbers, separated by commas

}  // namespace

std::vector<int> lost_ranks(const absl::Status& status) {
  std::vector<int> ranks;
  const auto payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return ranks;
  for (const auto number : absl::StrSplit(std::string(*payload), ',')) {
    int rank = 0;
    if (absl::SimpleAtoi(number, &rank)) ranks.push_back(rank);
  }
  return ranks;
}

absl::Status with_lost_ranks(absl::Status status, const std::vector<int>& ranks) {
  const std::vector<int> known = lost_ranks(status);
  std::set<int> all(known.begin(), known.end());
  all.insert(ranks.begin(), ranks.end());
  if (!all.empty()) status.SetPayload(kPayload, absl::Cord(absl::StrJoin(all, ",")));
  return status;
}

}  // namespace nezha
