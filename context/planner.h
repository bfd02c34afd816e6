// SPDX-License-Identifier: Apache-2.0
// By which plan the operations of a context run, and what they tell of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collectives/hosts/hosts_engine.h"
#include "common/hash_map.h"
#include "context/assignment.h"
#include "context/control_plane.h"
#include "context/engines.h"
#include "context/recovery.h"
#include "context/roster.h"
#include "context/running_operation.h"
#include "context/setup.h"

namespace nezha {

class PlannerOwner {
 public:
  // Whether this rank has started the operation, which may be over.
  virtual bool has_started(const OperationId& operation) const = 0;
  // Operations that had no plan may be given one.
  virtual void on_released() = 0;
  // Planner::set_up is to be called, not under the lock.
  virtual void on_set_up_wanted() = 0;
  // The context cannot go on.
  virtual void on_failed(const absl::Status& why) = 0;

 protected:
  ~PlannerOwner() = default;
};

// All of it under the lock, unless it says otherwise.
class Planner final : ControlPlaneOwner, flare::FlareEngineOwner {
 public:
  using Operations = Recovery::Operations;

  // `running` are the operations that are not over. What is referred to outlives it.
  Planner(const Setup& setup, Roster& roster, Engines& engines, HostsEngine& hosts,
          const Operations& running, PlannerOwner& owner);

  // ---- Setting up

  // Rank 0, not under the lock: reads the table that the options name.
  absl::Status load_table();
  // Once the group is formed: opens the switch's rail and makes the control plane. Throws if the
  // rail cannot be opened.
  void open();
  // Not under the lock, as it asks the store. Connects rank 0 and one other rank.
  void set_up();
  // The context is about to end.
  void close();
  // Once it is closed, not under the lock: keeps what was learned.
  void save() const;
  // The context is broken.
  void stop();
  // The context is about to end: nothing more is connected.
  void stop_measuring() { is_stopped_ = true; }

  // ---- Operations

  // None: the operation is to be held until on_released().
  std::optional<Assignment> assign(const RunningOperation& operation);
  std::string why_held() const { return control_->why_held(); }
  // It is about to start. Operations that run side by side tell of each other, not of the lanes.
  void note_disturbance(RunningOperation& operation);
  // It is over.
  void measure(const RunningOperation& operation);

  // ---- Engines that can be lost

  // The engine carries nothing at this rank any more, or does so again.
  void lose_engine(const Engine& engine);
  void regain_engine(const Engine& engine);
  void on_engine_lost(int lane) { control_->lose_engine(lane); }
  std::string why_frozen() const { return control_->why_frozen(); }

  BalanceStats balance() const;

 private:
  struct FailedRails {
    RailMask rails = 0;
    Nanos at = 0;  // when that was last seen
  };
  struct Over {
    Nanos at = 0;
    std::optional<SizeClass> size_class;  // of an allreduce
  };

  // ControlPlaneOwner and FlareEngineOwner
  bool has_started(const OperationId& operation) const override {
    return owner_.has_started(operation);
  }
  void on_failed(const absl::Status& why) override { owner_.on_failed(why); }
  void on_released() override { owner_.on_released(); }
  std::vector<FrozenPart> on_freeze(int lane) override { return recovery_.freeze(lane); }
  absl::Status on_recover(int lane, uint32_t epoch, const std::vector<Repair>& repairs) override;
  double rate(RailMask rails, bool also_tried) const override;
  void on_engine_up() override { regain_engine(*engines_.flare()); }
  void on_engine_down() override { lose_engine(*engines_.flare()); }
  bool is_recovering() const override { return control_ != nullptr && control_->is_recovering(); }

  void create_control();
  absl::Status find_lanes();
  bool is_planned(const Operation& operation);
  AssignedSlice planned_slice(const ControlPlane::PlannedSplit& split, const Operation& operation,
                              int lane) const;
  AssignedSlices unlearned_slices(const Request& request) const;
  void measure_lanes(const RunningOperation& operation);
  void want_set_up(const Operation& operation);
  Nanos idle_before(const RunningOperation& operation) const;
  bool was_beside_bursts(const RunningOperation& operation) const;
  RailMask failed_rails(const RunningOperation& operation);

  const Setup& setup_;
  Roster& roster_;
  Engines& engines_;
  HostsEngine& hosts_;
  const Operations& running_;
  PlannerOwner& owner_;
  Recovery recovery_;
  bool is_stopped_ = false;  // nothing is measured any more
  bool has_wanted_set_up_ = false;
  int connected_ = 0;                       // rank 0: the ranks its control plane is connected to
  Over last_over_;                          // of all operations
  std::vector<RailMask> seen_;              // by rank: the rails that have had a link to it
  HashMap<int, FailedRails> failed_;        // by rank
  std::optional<DataLengthTable> table_;    // that rank 0 begins with
  std::optional<DataLengthTable> learned_;  // that is to be saved
  std::unique_ptr<ControlPlane> control_;   // null: there is nothing to learn
};

}  // namespace nezha
