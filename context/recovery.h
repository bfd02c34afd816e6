// SPDX-License-Identifier: Apache-2.0
// Repairs a context's operations when an engine is lost: see control/recovery.h.
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

// All methods are called under the lock.
class Recovery {
 public:
  using Operations = std::vector<std::shared_ptr<RunningOperation>>;

  // `running` are the operations that are not over; repairs remove those that end. `fail` breaks
  // the context. All objects that are passed by reference must outlive this.
  Recovery(const Setup& setup, const Roster& roster, const Engines& engines, HostsEngine& hosts,
           const Operations& running, std::function<void(const absl::Status&)> fail)
      : setup_(setup),
        roster_(roster),
        engines_(engines),
        hosts_(hosts),
        running_(running),
        fail_(std::move(fail)) {}

  // The lane's engine is lost. Fences all tasks on it, and returns the report of them.
  std::vector<FrozenPart> freeze(int lane);
  // Ends the frozen operations as the repairs say. Returns an error if a repair is impossible.
  absl::Status recover(int lane, uint32_t epoch, const std::vector<Repair>& repairs);
  // Repairs nothing any more. May be called from inside of a task.
  void stop();
  // Destroys the bystanders at once. Must not be called from inside of a task.
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
  std::vector<Retained> retained_;  // what the lost engine retained, until recover()
  std::vector<std::shared_ptr<Bystander>> bystanders_;
};

}  // namespace nezha
