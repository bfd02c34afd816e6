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
  // The operation cannot go on: the context breaks.
  virtual void on_failed(const absl::Status& why) = 0;
  // It takes long: the other ranks may call another operation by its tag.
  virtual void on_operation_slow(const RunningOperation& operation) = 0;
  // It is about to time out: what can be found out about why should be.
  virtual void on_operation_overdue(const RunningOperation& operation) = 0;
  // Whether it waits for a rank that no rail reaches.
  virtual bool is_cut_off() const = 0;
  // What is known of the ranks that keep it waiting; "" if nothing.
  virtual std::string absent(const RunningOperation& operation) const = 0;
  // Returns the ranks that it waits for in vain.
  virtual std::vector<int> missing(const RunningOperation& operation) const = 0;
  // No callback follows, and what it needed of the context is released.
  virtual void on_operation_over(RunningOperation& operation) = 0;
  // An engine of the lane is lost: freeze() is to follow.
  virtual void on_engine_lost(int lane) = 0;
  // What an operation whose engine is lost waits for.
  virtual std::string why_frozen() const = 0;

 protected:
  ~RunningOperationOwner() = default;
};

// What the caller holds by its handle, and the context while it is not over. All but the waiting
// part under Progress's lock.
class RunningOperation final : public TaskOwner,
                               public std::enable_shared_from_this<RunningOperation> {
 public:
  // The owner is there until it is over.
  RunningOperation(RunningOperationOwner& owner, const Setup& setup, Request request);
  ~RunningOperation() = default;

  // Starts the deadline.
  void begin(uint64_t ordinal);
  // Starts the slices' tasks. The engine's error fails it.
  void start(const Group& group, Assignment assignment);

  // The engine is lost (control/recovery.h). Fences its part there, if it has one; it is not over
  // before that is repaired. What is to be reported of it.
  std::optional<FrozenPart> freeze(const Engine& engine, int ranks);
  // How its part of that lane ends, by the hosts engine; `repair` is null if it has none, and its
  // pieces are numbered from `number` on. An error if it cannot be.
  absl::Status repair(Engine& hosts, const Group& group, int lane, uint32_t epoch,
                      const Repair* repair, uint32_t number);
  OperationId id() const { return request_.operation.id(); }

  // What its lanes took, once it has succeeded: by lane, since its tasks began; 0 for a lane that
  // had nothing to carry. All are 0 if other operations ran beside it.
  LaneTimes lane_times(int lanes) const;
  // Over which it may have gone.
  RailMask rails() const;
  uint32_t allocation_number() const { return number_; }
  Nanos started_at() const { return started_at_; }  // 0: it has not
  bool has_started() const { return started_at_ != 0; }
  void set_disturbed() { is_disturbed_ = true; }
  // The fence: nothing reads or writes the caller's memory any more. The first reason counts.
  void fail(const absl::Status& why);
  bool over() const { return waiter_.done(); }
  const Request& request() const { return request_; }
  // As ContextImpl's.
  bool is_inherited() const { return mark_.is_inherited(); }
  void keep() { self_ = shared_from_this(); }  // it is never destroyed
  // Whom it waits for before its tasks can start.
  const std::vector<int>& awaited_ranks() const { return awaited_ranks_; }
  // Before it starts: what it waits for, and for which ranks.
  void waits_for(std::string what, std::vector<int> ranks = {}) {
    waits_for_ = std::move(what);
    awaited_ranks_ = std::move(ranks);
  }

  // For the handle: these take the lock. They throw if it is inherited.
  bool test() const;
  bool wait(Nanos deadline);  // false: not over by then
  void cancel();
  // Once it is over.
  void raise_if_failed() const;
  // Once it has succeeded: the rank that a receive's message came from. -1 if there is none.
  int source() const;
  // Once it has succeeded: the size of the message that a receive has taken; 0 if it is none.
  size_t received_bytes() const;
  // Calls the function when it is over, under the lock; or now, without it. False: an earlier one
  // is set, and this one is not called.
  bool notify(std::function<void()> function);

 private:
  std::shared_ptr<Endpoint> endpoint() const;  // null: it is over
  void on_finished(Task& task) override;
  struct Part {
    std::unique_ptr<Task> task;  // null: it waits for a repair
    Slice slice;
    Engine* engine = nullptr;
    ScheduleKind schedule = ScheduleKind::kRing;
    bool is_empty = false;
    bool is_frozen = false;  // it waits for what becomes of it
    bool is_final = false;   // nothing of it is missing here, its task notwithstanding
    Nanos finished_at = 0;

    bool is_done() const {
      const bool has_it = is_final || (task != nullptr && task->poll() == Task::State::kDone);
      return has_it && !is_frozen;
    }
  };
  // Beside the lanes': a barrier, for operations that are else over before all ranks have started
  // them.
  static constexpr uint8_t kGateLane = 255;

  void hold_memory(int rank);
  bool start_task(const Group& group, const EnginePlan& plan, Part& part);
  bool start_gate(const Group& group);
  // By which a part goes that is none of a repair.
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
  std::shared_ptr<RunningOperation> self_;  // while something is to come, although it is over
  RunningOperationOwner* owner_;            // null once it is over: the context may be gone
  Progress& progress_;                      // while it is not over
  std::weak_ptr<Endpoint> endpoint_;        // the context's; without a context it is over
  std::string rank_of_;                     // "rank 1 of 4"
  Request request_;
  Hold input_, output_;  // the caller's, while tasks use them
  std::string waits_for_;
  std::vector<int> awaited_ranks_;
  absl::InlinedVector<Part, 1, RecyclingAllocator<Part>> parts_;
  Buffer scratch_;          // theirs
  Engine* gate_ = nullptr;  // null: none is needed
  bool started_ = false;
  Nanos started_at_ = 0;
  uint32_t number_ = 0;        // the allocation's
  bool is_disturbed_ = false;  // another one ran meanwhile
  Waiter waiter_;
  Nanos overdue_at_ = 0;
  Alarm slow_;  // and then overdue
  Alarm deadline_;
  std::function<void()> when_over_;        // null: nobody is to be told, or was told
  std::atomic<bool> has_notified_{false};  // a function was set
  absl::Status status_;
  mutable std::atomic<bool> is_known_over_{false};  // who holds the handle knows that it is over
};

}  // namespace nezha
