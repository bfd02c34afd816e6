// SPDX-License-Identifier: Apache-2.0
// Runs of one operation that the test starts one by one.
#pragma once

#include <memory>
#include <vector>

#include "tests/unit/collectives/hosts/world.h"

namespace nezha {

class Parts {
 public:
  explicit Parts(World& world) : world_(world), parts_(static_cast<size_t>(world.size())) {}
  ~Parts() {
    for (int r = 0; r < world_.size(); ++r) end(r);
  }
  void end(int r) {
    if (parts_[static_cast<size_t>(r)] == nullptr) return;
    Progress::Guard guard(progress(r));
    parts_[static_cast<size_t>(r)].reset();
    progress(r).run_deferred();
  }
  RankRun<>& start(int r, ScheduleKind schedule, const Work& work) {
    auto& part = parts_[static_cast<size_t>(r)];
    part = std::make_unique<RankRun<>>(world_.rank(r), schedule, work, std::vector<Lane>{kWhole});
    Progress::Guard guard(progress(r));
    part->start();
    progress(r).run_deferred();
    return *part;
  }
  bool is_over(int r, Nanos within = 60 * kSecond) {
    Progress::Guard guard(progress(r));
    return progress(r).wait(guard, parts_[static_cast<size_t>(r)]->waiter, now() + within);
  }

 private:
  Progress& progress(int r) { return world_.rank(r).endpoint->progress(); }
  World& world_;
  std::vector<std::unique_ptr<RankRun<>>> parts_;
};

}  // namespace nezha
