// SPDX-License-Identifier: Apache-2.0
// An operation of a context, from its start to its end.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "collectives/engine.h"
#include "common/fork.h"
#include "common/recycled.h"
#include "context/assignment.h"
#include "context/request.h"
#include "context/setup.h"
#include "control/recovery.h"
#include "control/timer.h"
#include "transport/endpoint.h"
#include "transport/held_memory.h"

namespace nezha {

class RunningOperation;

// The context of an operation.
class RunningOperationOwner {
 public:
  // The operation cannot go on, so the context breaks.
  virtual void on_failed(const absl::Status& why) = 0;
  // The operation takes long. Other ranks may have called another operation by its tag.
  virtual void on_operation_slow(const RunningOperation& operation) = 0;
  // The operation is about to time out. The owner should find out why.
  virtual void on_operation_overdue(const RunningOperation& operation) = 0;
  // Returns whether the context waits for a rank that no rail reaches.
  virtual bool is_cut_off() const = 0;
  // Returns what is known of the ranks that keep the operation waiting, for errors; "" if nothing
  // is known.
  virtual std::string absent(const RunningOperation& operation) const = 0;
  // Returns the ranks that keep the operation from ending.
  virtual std::vector<int> missing(const RunningOperation& operation) const = 0;
  // The operation is over. It has released what it used of the context, and calls the owner no
  // more.
  virtual void on_operation_over(RunningOperation& operation) = 0;
  // The lane's engine is lost. The owner is to call freeze().
  virtual void on_engine_lost(int lane) = 0;
  // Returns what an operation whose engine is lost waits for, for errors.
  virtual std::string why_frozen() const = 0;

 protected:
  ~RunningOperationOwner() = default;
};

// The caller's handle shares this, and so does the context until the operation is over. All
// methods are called under Progress's lock, except those for the handle.
class RunningOperation final : public TaskOwner,
                               public std::enable_shared_from_this<RunningOperation> {
 public:
  // The owner must live until the operation is over.
  RunningOperation(RunningOperationOwner& owner, const Setup& setup, Request request);
  ~RunningOperation() = default;

  // Starts the deadline.
  void begin(uint64_t ordinal);
  // Starts the slices' tasks. An error of the engine fails the operation.
  void start(const Group& group, Assignment assignment);

  // The engine is lost (control/recovery.h). Fences the operation's part on that engine, if there
  // is one, and returns the report of it. The operation is not over before the part is repaired.
  std::optional<FrozenPart> freeze(const Engine& engine, int ranks);
  // Ends the part of that lane by the hosts engine. `repair` is null if there is none for this
  // operation; its pieces are numbered from `number` on. Returns an error if the repair is
  // inconsistent with this rank's state.
  absl::Status repair(Engine& hosts, const Group& group, int lane, uint32_t epoch,
                      const Repair* repair, uint32_t number);
  OperationId id() const { return request_.operation.id(); }

  // Returns, once the operation has succeeded, for each lane the time from the start of the tasks
  // to the end of the lane's; 0 for a lane that had nothing to carry. All are 0 if other operations
  // ran at the same time or an engine was lost.
  LaneTimes lane_times(int lanes) const;
  // Returns the rails that the operation was allowed to use.
  RailMask rails() const;
  uint32_t allocation_number() const { return number_; }
  Nanos started_at() const { return started_at_; }  // 0: its tasks have not started
  bool has_started() const { return started_at_ != 0; }
  void set_disturbed() { is_disturbed_ = true; }
  // Fences the tasks: nothing reads or writes the caller's memory any more. The first reason
  // counts.
  void fail(const absl::Status& why);
  bool over() const { return waiter_.done(); }
  const Request& request() const { return request_; }
  // Does what ContextImpl::is_inherited does.
  bool is_inherited() const { return mark_.is_inherited(); }
  void keep() { self_ = shared_from_this(); }  // the operation is never destroyed
  // Returns the ranks that the operation waits for before its tasks can start.
  const std::vector<int>& awaited_ranks() const { return awaited_ranks_; }
  // Sets what the operation waits for, and for which ranks. Is called before the tasks start.
  void waits_for(std::string what, std::vector<int> ranks = {}) {
    waits_for_ = std::move(what);
    awaited_ranks_ = std::move(ranks);
  }

  // The handle calls these, which take the lock. They throw if the operation is inherited.
  bool test() const;
  bool wait(Nanos deadline);  // false: not over at the deadline
  void cancel();
  // Throws the operation's error if it has failed. Is called once the operation is over.
  void raise_if_failed() const;
  // Returns the rank that sent the message of a receive that has succeeded; otherwise -1.
  int source() const;
  // Returns the size of the message of a receive that has succeeded; otherwise 0.
  size_t received_bytes() const;
  // Calls the function under the lock when the operation is over, or at once, without the lock, if
  // it is over already. Returns false, and never calls the function, if one was set before.
  bool notify(std::function<void()> function);

 private:
  std::shared_ptr<Endpoint> endpoint() const;  // null: the operation is over
  void on_finished(Task& task) override;
  struct Part {
    std::unique_ptr<Task> task;  // null: the part waits for a repair
    Slice slice;
    Engine* engine = nullptr;
    ScheduleKind schedule = ScheduleKind::kRing;
    bool is_empty = false;
    bool is_frozen = false;  // the engine is lost, and the repair is not known yet
    bool is_final = false;   // this rank has the whole result, although the task was fenced
    Nanos finished_at = 0;

    bool is_done() const {
      const bool has_it = is_final || (task != nullptr && task->poll() == Task::State::kDone);
      return has_it && !is_frozen;
    }
  };
  // The lane number of the gate, which differs from all lanes. The gate is a barrier for operations
  // that could otherwise be over before all ranks have started them.
  static constexpr uint8_t kGateLane = 255;

  void hold_memory(int rank);
  bool start_task(const Group& group, const EnginePlan& plan, Part& part);
  bool start_gate(const Group& group);
  // Returns the plan of a part that is not a piece of a repair.
  EnginePlan plan_of(const Part& part) const {
    return {part.schedule, request_.plan.version, request_.plan.epoch};
  }
  absl::Status cannot_be_repaired() const;
  absl::Status start_pieces(Engine& hosts, const Group& group, uint32_t epoch, const Repair& repair,
                            uint32_t number, const Slice& slice, ScheduleKind schedule);
  void finish_if_done();
  void finish();
  void give_back();
  void on_slow();
  void on_deadline();
  std::string describe() const;
  Pace pace() const;

  ForkMark mark_;
  std::shared_ptr<RunningOperation> self_;  // keeps it alive until give_back(); see also keep()
  RunningOperationOwner* owner_;      // null once it is over, because the context may be gone then
  Progress& progress_;                // valid until it is over
  std::weak_ptr<Endpoint> endpoint_;  // the context's; once that is gone, the operation is over
  std::string rank_of_;               // "rank 1 of 4"
  Request request_;
  Hold input_, output_;  // hold the caller's memory, while tasks use it
  std::string waits_for_;
  std::vector<int> awaited_ranks_;
  absl::InlinedVector<Part, 1, RecyclingAllocator<Part>> parts_;
  Buffer scratch_;          // used by the parts
  Engine* gate_ = nullptr;  // carries out the gate; null: none is needed, or it has started
  bool started_ = false;
  Nanos started_at_ = 0;
  uint32_t number_ = 0;        // the allocation's
  bool is_disturbed_ = false;  // its lane times do not count
  Waiter waiter_;
  Nanos overdue_at_ = 0;
  Alarm slow_;  // rings while the operation is slow, and last when it is overdue
  Alarm deadline_;
  std::function<void()> when_over_;        // null: none was set, or it was called
  std::atomic<bool> has_notified_{false};  // notify() was called
  absl::Status status_;
  mutable std::atomic<bool> is_known_over_{false};  // test() or wait() has returned true
};

}  // namespace nezha
