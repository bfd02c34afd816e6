// SPDX-License-Identifier: Apache-2.0
#include "rails/affinity.h"

#include <algorithm>
#include <iterator>

namespace nezha {

std::vector<Cpus> deal_cores(const std::vector<Cpus>& near, const Cpus& free) {
  std::vector<Cpus> suited(near.size()), dealt(near.size());
  for (size_t rail = 0; rail < near.size(); ++rail) {
    std::set_intersection(near[rail].begin(), near[rail].end(), free.begin(), free.end(),
                          std::inserter(suited[rail], suited[rail].end()));
    if (suited[rail].empty()) suited[rail] = free;
  }
  // Each core goes to the rail that has the fewest so far, among those that the core suits.
  for (const int cpu : free) {
    Cpus* poorest = nullptr;
    for (size_t rail = 0; rail < near.size(); ++rail) {
      const bool is_poorer = poorest == nullptr || dealt[rail].size() < poorest->size();
      if (suited[rail].contains(cpu) && is_poorer) poorest = &dealt[rail];
    }
    if (poorest != nullptr) poorest->insert(cpu);
  }
  size_t turn = 0;
  for (size_t rail = 0; rail < near.size(); ++rail) {
    if (!dealt[rail].empty()) continue;
    const auto place = static_cast<Cpus::difference_type>(turn++ % suited[rail].size());
    dealt[rail].insert(*std::next(suited[rail].begin(), place));
  }
  return dealt;
}

}  // namespace nezha
