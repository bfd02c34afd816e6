#include "control/policy.h"

namespace nezha {

std::vector<LaneSet> Policy::usable_sets() const {
  std::vector<LaneSet> sets;
  for (LaneSet set = 1; set <= live_; ++set) {
    if (is_usable(set)) sets.push_back(set);
  }
  return sets;
}

}  // namespace nezha
