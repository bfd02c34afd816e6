// SPDX-License-Identifier: Apache-2.0
// What a context's operations do without an engine that is lost: control/recovery.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "collectives/hosts/hosts_engine.h"
#include "context/engines.h"
#include "context/repair.h"
#include "context/roster.h"
#include "context/running_operation.h"
#include "control/recovery.h"

namespace nezha {

// All of it under the lock.
class Recovery {
 public:
  using Operations = std::vector<std::shared_ptr<RunningOperation>>;

  // `running` are the operations that are not over, of which some end while they are repaired.
  // `fail` breaks the context. What is referred to outlives it.
  Recovery(const Setup& setup, const Roster& roster, const Engines& engines, HostsEngine& hosts,
           const Operations& running, std::function<void(const absl::Status&)> fail)
      : setup_(setup),
        roster_(roster),
        engines_(engines),
        hosts_(hosts),
        running_(running),
        fail_(std::move(fail)) {}

  // The lane's engine is lost: fences all tasks there. Returns what is to be reported of them.
  std::vector<FrozenPart> freeze(int lane);
  // How these end. An error if the repairs cannot be.
  absl::Status recover(int lane, uint32_t epoch, const std::vector<Repair>& repairs);
  // Nothing is repaired any more. May be called by one of the tasks.
  void stop();
  // Likewise, but no task may be at work.
  void clear() { bystanders_.clear(); }

 private:
  absl::Status stand_by(int lane, uint32_t epoch, const Repair& repair, uint32_t number);

  const Setup& setup_;
  const Roster& roster_;
  const Engines& engines_;
  HostsEngine& hosts_;
  const Operations& running_;
  std::function<void(const absl::Status&)> fail_;
  bool is_stopped_ = false;
  std::vector<Retained> retained_;  // by the engine that is being recovered
  std::vector<std::shared_ptr<Bystander>> bystanders_;
};

}  // namespace nezha
