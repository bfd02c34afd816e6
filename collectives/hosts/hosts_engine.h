// SPDX-License-Identifier: Apache-2.0
// The hosts engine: algorithms over channels.
#pragma once

#include <memory>
#include <vector>

#include "collectives/engine.h"
#include "collectives/hosts/schedule.h"

namespace nezha {

class HostsEngine final : public Engine {
 public:
  std::vector<int> peers(const Group& group, const Operation& operation,
                         const EnginePlan& plan) const override;
  absl::StatusOr<std::unique_ptr<Task>> start(const Group& group, const Slice& slice,
                                              const EnginePlan& plan, TaskOwner& owner) override;

  // The schedule of the plan, given what was asked for. InvalidArgument if that cannot serve.
  static absl::StatusOr<ScheduleKind> choose(Algorithm asked, int ranks,
                                             const Operation& operation);

 private:
  // What a schedule depends on.
  struct Case {
    Collective collective = Collective::kAllreduce;
    int root = 0;
    ScheduleKind kind = ScheduleKind::kRing;
    int rank = 0;
    int size = 0;
    bool operator==(const Case&) const = default;
  };
  const Schedule& schedule(const Group& group, const Operation& operation, ScheduleKind kind) const;

  // The last one: of small operations to make it takes long, and mostly the next is alike. Under
  // Progress's lock, and only until the next call.
  mutable Case case_;
  mutable Schedule schedule_;
};

}  // namespace nezha
