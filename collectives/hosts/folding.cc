// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/folding.h"

#include <bit>

namespace nezha {

Schedule folded(int rank, int size, Schedule (*core)(int rank, int power)) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const int pairs = size - power;
  const bool is_paired = rank < 2 * pairs;
  Schedule schedule = core(is_paired ? rank / 2 : rank - pairs, power);
  auto& steps = schedule.steps;
  for (Step& step : steps) {
    for (auto* transfers : {&step.sends, &step.receives}) {
      for (Transfer& transfer : *transfers) {
        transfer.peer = transfer.peer < pairs ? 2 * transfer.peer : transfer.peer + pairs;
      }
    }
  }
  if (!is_paired) return schedule;
  const Transfer other{rank ^ 1, {0, schedule.chunks}};
  if (rank % 2 == 1) {
    steps = {{.use = Step::Use::kResult, .sends = {other}, .receives = {}},
             {.use = Step::Use::kResult, .sends = {}, .receives = {other}}};
  } else {
    steps.insert(steps.begin(), {.use = Step::Use::kPartialSum, .sends = {}, .receives = {other}});
    steps.push_back({.use = Step::Use::kResult, .sends = {other}, .receives = {}});
  }
  return schedule;
}

}  // namespace nezha
