// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/halving.h"

#include <bit>

namespace nezha {

Schedule halving_reduce_scatter(int rank, int size) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const int pairs = size - power;
  // Returns the rank of a member that is left after folding (of a pair, the first rank), which is
  // also the member's first block.
  const auto unfolded = [&](int member) { return member < pairs ? 2 * member : member + pairs; };
  const bool is_paired = rank < 2 * pairs;
  const Chunks all{0, size};
  Schedule schedule{.chunks = size, .steps = {}};
  auto& steps = schedule.steps;
  if (is_paired && rank % 2 == 1) {
    steps = {{.use = Step::Use::kResult, .sends = {{rank - 1, all}}, .receives = {}},
             {.use = Step::Use::kResult, .sends = {}, .receives = {{rank - 1, {rank, rank + 1}}}}};
    return schedule;
  }
  if (is_paired) {
    steps = {{.use = Step::Use::kPartialSum, .sends = {}, .receives = {{rank + 1, all}}}};
  }
  const int member = is_paired ? rank / 2 : rank - pairs;
  int begin = 0;
  for (int half = power / 2; half > 0; half /= 2) {
    const bool is_lower = member < begin + half;
    const int middle = begin + half;
    const int end = begin + 2 * half;
    const Chunks lower{unfolded(begin), unfolded(middle)};
    const Chunks upper{unfolded(middle), unfolded(end)};
    const int peer = unfolded(is_lower ? member + half : member - half);
    steps.push_back({.use = half == 1 ? Step::Use::kFinalSum : Step::Use::kPartialSum,
                     .sends = {{peer, is_lower ? upper : lower}},
                     .receives = {{peer, is_lower ? lower : upper}}});
    if (!is_lower) begin = middle;
  }
  if (is_paired) {
    steps.push_back(
        {.use = Step::Use::kResult, .sends = {{rank + 1, {rank + 1, rank + 2}}}, .receives = {}});
  }
  return schedule;
}

}  // namespace nezha
