// SPDX-License-Identifier: Apache-2.0
// The hosts engine: algorithms over channels.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "collectives/engine.h"
#include "collectives/hosts/schedule.h"
#include "common/hash_map.h"

namespace nezha {

class HostsEngine final : public Engine {
 public:
  std::vector<int> peers(const Group& group, const Operation& operation,
                         const EnginePlan& plan) const override {
    return known_peers(group, operation, plan.schedule);
  }
  // Returns the same peers. The reference is valid until the next call.
  const std::vector<int>& known_peers(const Group& group, const Operation& operation,
                                      ScheduleKind kind) const;
  absl::StatusOr<std::unique_ptr<Task>> start(const Group& group, const Slice& slice,
                                              const EnginePlan& plan, TaskOwner& owner) override;

  // Returns the schedule for the plan, given the algorithm that the user asked for. Returns
  // InvalidArgument if that algorithm cannot serve the operation.
  static absl::StatusOr<ScheduleKind> choose(Algorithm asked, int ranks,
                                             const Operation& operation);

 private:
  // Everything that a schedule depends on.
  struct Case {
    Collective collective = Collective::kAllreduce;
    int root = 0;
    ScheduleKind kind = ScheduleKind::kRing;
    int rank = 0;
    int size = 0;
    bool operator==(const Case&) const = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Case& it) {
      return H::combine(std::move(hash), it.collective, it.root, it.kind, it.rank, it.size);
    }
  };
  struct Way {
    Schedule schedule;  // has no steps if the kind needs no schedule
    std::vector<int> peers;
  };
  static constexpr size_t kMostWays = 32;

  static Way make_way(const Case& wanted, const Operation& operation);
  const Way& way(const Group& group, const Operation& operation, ScheduleKind kind) const;

  // A cache of schedules: making one takes long compared with a small operation, and mostly there
  // are few. It is used under Progress's lock.
  mutable HashMap<Case, Way> ways_;
};

}  // namespace nezha
