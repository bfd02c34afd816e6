#include "collectives/hosts/folding.h"

#include <bit>

namespace nezha {

Schedule folded(int rank, int size, Schedule (*core)(int rank, int power)) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  Schedule schedule = core(rank & (power - 1), power);
  const Chunks whole{0, schedule.chunks};
  auto& steps = schedule.steps;
  if (rank >= power) {
    const Transfer other{rank - power, whole};
    steps = {{.use = Step::Use::kResult, .sends = {other}, .receives = {}},
             {.use = Step::Use::kResult, .sends = {}, .receives = {other}}};
  } else if (rank + power < size) {
    const Transfer other{rank + power, whole};
    steps.insert(steps.begin(), {.use = Step::Use::kPartialSum, .sends = {}, .receives = {other}});
    steps.push_back({.use = Step::Use::kResult, .sends = {other}, .receives = {}});
  }
  return schedule;
}

}  // namespace nezha
