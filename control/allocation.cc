// SPDX-License-Identifier: Apache-2.0
#include "control/allocation.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace nezha {

Allocation all_on(int lane, int lanes) {
  Allocation allocation(static_cast<size_t>(lanes));
  allocation[static_cast<size_t>(lane)] = SliceBounds::kWhole;
  return allocation;
}

Allocation equal_parts(LaneSet set, int lanes) {
  RecycledVector<double> weights(static_cast<size_t>(lanes));
  for (int lane = 0; lane < lanes; ++lane) {
    weights[static_cast<size_t>(lane)] = contains(set, lane) ? 1 : 0;
  }
  return in_proportion(weights);
}

Allocation unlearned(LaneSet live, LaneSet alone, int lanes) {
  const LaneSet whole = live & alone;
  return whole == 0 ? equal_parts(live, lanes) : all_on(std::countr_zero(whole), lanes);
}

Allocation in_proportion(absl::Span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  Allocation allocation;
  uint32_t left = SliceBounds::kWhole;
  for (const double weight : weights) {
    const auto part = static_cast<uint32_t>(weight / sum * SliceBounds::kWhole);
    allocation.push_back(std::min(part, left));
    left -= allocation.back();
  }
  const auto largest = std::max_element(weights.begin(), weights.end()) - weights.begin();
  allocation[static_cast<size_t>(largest)] += left;
  return allocation;
}

Allocation restricted_to(LaneSet set, const Allocation& allocation) {
  RecycledVector<double> weights(allocation.begin(), allocation.end());
  for (size_t lane = 0; lane < weights.size(); ++lane) {
    if (!contains(set, static_cast<int>(lane))) weights[lane] = 0;
  }
  return in_proportion(weights);
}

LaneSet lanes_of(const Allocation& allocation) {
  LaneSet set = 0;
  for (size_t lane = 0; lane < allocation.size(); ++lane) {
    if (allocation[lane] > 0) set |= lane_bit(static_cast<int>(lane));
  }
  return set;
}

std::string to_string(const Allocation& allocation) {
  return absl::StrJoin(allocation, " ", [](std::string* out, uint32_t part) {
    absl::StrAppendFormat(out, "%.1f", 100.0 * part / SliceBounds::kWhole);
  });
}

}  // namespace nezha
