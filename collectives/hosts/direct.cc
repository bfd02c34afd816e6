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

}  // namespace nezha
