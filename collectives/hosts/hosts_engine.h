// The hosts engine: algorithms over channels.
#pragma once

#include <memory>
#include <vector>

#include "collectives/engine.h"

namespace nezha {

class HostsEngine final : public Engine {
 public:
  std::vector<int> peers(const Group& group, const Operation& operation,
                         const EnginePlan& plan) const override;
  absl::StatusOr<std::unique_ptr<Task>> start(const Group& group, const Slice& slice,
                                              const EnginePlan& plan, TaskOwner& owner) override;

  // The algorithm of the plan, given what was asked for. InvalidArgument if that cannot serve.
  static absl::StatusOr<Algorithm> choose(Algorithm asked, int ranks, const Operation& operation);
};

}  // namespace nezha
