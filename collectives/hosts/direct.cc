// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/direct.h"

#include <vector>

#include "collectives/hosts/bcube.h"

namespace nezha {

Schedule direct(int rank, int size) { return bcube(rank, std::vector<int>{size}); }

Schedule direct_reduce(int rank, int root, int size) {
  Schedule schedule = direct(rank, size);
  Step& gather = schedule.steps.back();
  if (rank == root) {
    gather.sends.clear();
  } else {
    gather.receives.clear();
    std::erase_if(gather.sends, [&](const Transfer& transfer) { return transfer.peer != root; });
  }
  return schedule;
}

Schedule direct_reduce_scatter(int rank, int size) {
  Schedule schedule = direct(rank, size);
  schedule.steps.pop_back();
  return schedule;
}

Schedule direct_allgather(int rank, int size) {
  Schedule schedule = direct(rank, size);
  schedule.steps.erase(schedule.steps.begin());
  return schedule;
}

Schedule direct_alltoall(int rank, int size) {
  Schedule schedule{.chunks = size, .steps = {{}}, .is_exchange = true};
  Step& step = schedule.steps.front();
  for (int k = 1; k < size; ++k) {
    const int right = (rank + k) % size;
    const int left = (rank - k + size) % size;
    step.sends.push_back({right, {right, right + 1}});
    step.receives.push_back({left, {left, left + 1}});
  }
  return schedule;
}

Schedule direct_gather(int rank, int root, int size) {
  Schedule schedule{.chunks = size, .steps = {{}}};
  Step& step = schedule.steps.front();
  if (rank != root) step.sends = {{root, {rank, rank + 1}}};
  for (int peer = 0; rank == root && peer < size; ++peer) {
    if (peer != root) step.receives.push_back({peer, {peer, peer + 1}});
  }
  schedule.steps.push_back(agreement(rank, size));
  return schedule;
}

Schedule direct_scatter(int rank, int root, int size) {
  Schedule schedule{.chunks = size, .steps = {{}}};
  Step& step = schedule.steps.front();
  if (rank != root) step.receives = {{root, {rank, rank + 1}}};
  for (int k = 1; rank == root && k < size; ++k) {
    const int peer = (root + k) % size;
    step.sends.push_back({peer, {peer, peer + 1}});
  }
  schedule.steps.push_back(agreement(rank, size));
  return schedule;
}

}  // namespace nezha
