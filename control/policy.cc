// SPDX-License-Identifier: Apache-2.0
#include "control/policy.h"

namespace nezha {
namespace {

constexpr int kMany = 6;  // lanes that carry parts: to look at all of their sets takes too long
constexpr int kFew = 2;

}  // namespace

RecycledVector<LaneSet> Policy::usable_sets() const {
  const int all = std::popcount(sharing());
  RecycledVector<LaneSet> sets;
  for (LaneSet set = 1; set <= live_; ++set) {
    const int size = std::popcount(set);
    if (is_usable(set) && (all <= kMany || size <= kFew || size >= all - kFew)) sets.push_back(set);
  }
  return sets;
}

}  // namespace nezha
