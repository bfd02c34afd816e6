// SPDX-License-Identifier: Apache-2.0
#include "control/shuffle_policy.h"

#include <cstddef>
#include <iterator>
#include <vector>

namespace nezha {

Allocation ShufflePolicy::open(SizeClass /*size_class*/) { return any(); }

void ShufflePolicy::resume(const Window& /*last*/, const Way& /*ran_by*/, ClassState /*state*/) {}

std::optional<Decision> ShufflePolicy::on_window(const Window& /*window*/,
                                                 const Allocation& /*ran_by*/) {
  Decision decision{any(), Cause::kSearch, "at random"};
  constexpr Algorithm kAny[] = {Algorithm::kAuto, Algorithm::kRecursiveDoubling,
                                Algorithm::kHalvingDoubling};
  if (changes_algorithms_) decision.algorithm = kAny[random_() % std::size(kAny)];
  return decision;
}

Allocation ShufflePolicy::on_lanes(SizeClass /*size_class*/, const Allocation& /*current*/) {
  return any();
}

Allocation ShufflePolicy::any() {
  const RecycledVector<LaneSet> sets = usable_sets();
  const LaneSet set = sets[std::uniform_int_distribution<size_t>(0, sets.size() - 1)(random_)];
  std::vector<double> weights(static_cast<size_t>(lanes()));
  std::uniform_real_distribution<double> weight(0.01, 1);
  for (int lane = 0; lane < lanes(); ++lane) {
    if (contains(set, lane)) weights[static_cast<size_t>(lane)] = weight(random_);
  }
  return in_proportion(weights);
}

}  // namespace nezha
