// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/bcube.h"

#include <functional>
#include <numeric>

namespace nezha {
namespace {

std::vector<int> groups_of(int size) {
  std::vector<int> groups;
  while (size > 1) {
    int group = kBcubeBase;
    while (group > 1 && size % group != 0) --group;
    if (group == 1) {
      for (group = kBcubeBase + 1; size % group != 0;) ++group;
    }
    groups.push_back(group);
    size /= group;
  }
  return groups;
}

}  // namespace

Schedule bcube(int rank, int size) { return bcube(rank, groups_of(size)); }

Schedule bcube(int rank, const std::vector<int>& groups) {
  Schedule schedule;
  schedule.chunks = std::accumulate(groups.begin(), groups.end(), 1, std::multiplies<>());
  std::vector<Step> allgather;
  Chunks held{0, schedule.chunks};
  int distance = 1;  // between the ranks of a group
  for (const int group : groups) {
    const int digit = rank / distance % group;
    const int first = rank - digit * distance;
    const int chunks = (held.end - held.begin) / group;
    const auto part = [&](int member) {
      return Chunks{held.begin + member * chunks, held.begin + (member + 1) * chunks};
    };
    Step scatter{.use = Step::Use::kPartialSum, .sends = {}, .receives = {}};
    Step gather{.use = Step::Use::kResult, .sends = {}, .receives = {}};
    for (int member = 0; member < group; ++member) {
      if (member == digit) continue;
      scatter.receives.push_back({first + member * distance, part(digit)});
      gather.receives.push_back({first + member * distance, part(member)});
    }
    // Each rank starts with another peer, so that not all send to the same rank at first.
    for (int i = 1; i < group; ++i) {
      const int member = (digit + i) % group;
      scatter.sends.push_back({first + member * distance, part(member)});
      gather.sends.push_back({first + member * distance, part(digit)});
    }
    schedule.steps.push_back(scatter);
    allgather.push_back(gather);
    held = part(digit);
    distance *= group;
  }
  if (!groups.empty()) schedule.steps.back().use = Step::Use::kFinalSum;
  schedule.steps.insert(schedule.steps.end(), allgather.rbegin(), allgather.rend());
  return schedule;
}

}  // namespace nezha
