// SPDX-License-Identifier: Apache-2.0
// Chooses how each operation of a context is carried out, and reports its timings to rank 0.
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
  // Returns whether this rank has started the operation. It may be over already.
  virtual bool has_started(const OperationId& operation) const = 0;
  // Operations that assign() gave nothing may be tried again.
  virtual void on_released() = 0;
  // Asks the owner to call Planner::set_up, later and without the lock.
  virtual void on_set_up_wanted() = 0;
  // The context cannot go on.
  virtual void on_failed(const absl::Status& why) = 0;

 protected:
  ~PlannerOwner() = default;
};

// All methods are called under the lock, except where noted.
class Planner final : ControlPlaneOwner, flare::FlareEngineOwner {
 public:
  using Operations = Recovery::Operations;

  // `running` are the operations that are not over. All arguments must outlive the planner.
  Planner(const Setup& setup, Roster& roster, Engines& engines, HostsEngine& hosts,
          const Operations& running, PlannerOwner& owner);

  // ---- Setting up

  // Reads the table that the options name. Is called at rank 0, without the lock.
  absl::Status load_table();
  // Opens the switch's rail and makes the control plane. The group must be formed. Throws if the
  // rail cannot be opened.
  void open();
  // Connects rank 0 and one other rank. Is called without the lock, since it asks the store.
  void set_up();
  // Ends the control plane and the recovery, because the context is about to end.
  void close();
  // Writes what was learned to the table's file. Is called after close(), without the lock.
  void save() const;
  // Stops measuring and recovering, because the context is broken.
  void stop();
  // Because the context is about to end, nothing more is measured or connected.
  void stop_measuring() { is_stopped_ = true; }

  // ---- Operations

  // Decides how the operation is carried out. Returns nothing if the operation must be held until
  // on_released().
  std::optional<Assignment> assign(const RunningOperation& operation);
  std::string why_held() const { return control_->why_held(); }
  // The operation is about to start. If others are running, all of them are marked as disturbed:
  // the timings of operations that overlap say little about the lanes.
  void note_disturbance(RunningOperation& operation);
  // The operation is over.
  void measure(const RunningOperation& operation);

  // ---- Engines that can be lost

  // This rank can no longer use the engine, or can use it again.
  void lose_engine(const Engine& engine);
  void regain_engine(const Engine& engine);
  void on_engine_lost(int lane) { control_->lose_engine(lane); }
  std::string why_frozen() const { return control_->why_frozen(); }

  BalanceStats balance() const;

 private:
  struct FailedRails {
    RailMask rails = 0;
    Nanos at = 0;  // when the failure was last seen
  };
  struct Over {
    Nanos at = 0;
    std::optional<SizeClass> size_class;  // if it was an allreduce
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
  int connected_ = 0;                 // rank 0: how many ranks its control plane is connected to
  Over last_over_;                    // the latest operation that is over
  std::vector<RailMask> seen_;        // indexed by rank: the rails that have had a link to it
  HashMap<int, FailedRails> failed_;  // keyed by rank
  std::optional<DataLengthTable> table_;    // read from the file; rank 0 begins with it
  std::optional<DataLengthTable> learned_;  // the table to be written to the file
  std::unique_ptr<ControlPlane> control_;   // null: there is nothing to learn
};

}  // namespace nezha
