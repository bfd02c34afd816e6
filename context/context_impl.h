// SPDX-License-Identifier: Apache-2.0
// ContextImpl implements nezha::Context. It has a part for each job:
//
//   Setup         the settings and resources that the context is made of
//   Joining       the steps by which a rank joins
//   Roster        the ranks, and the channels that lead to them
//   RequestMaker  makes requests from the options of collectives
//   Starter       operations whose peers are not known yet
//   PointToPoint  the sends and receives
//   Planner       divides operations over lanes, and measures them
//   Engines       engines that can be lost; Recovery repairs operations when one is
//   RollCalls     what ranks tell each other about operations that take long
//
// ContextImpl itself starts and ends operations, and handles failure.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "collectives/hosts/hosts_engine.h"
#include "common/fork.h"
#include "common/out_of_memory.h"
#include "context/engines.h"
#include "context/planner.h"
#include "context/point_to_point.h"
#include "context/requests.h"
#include "context/roll_calls.h"
#include "context/roster.h"
#include "context/running_operation.h"
#include "context/setup.h"
#include "context/starter.h"
#include "nezha/context.h"
#include "nezha/handle.h"
#include "transport/endpoint.h"

namespace nezha {

class ContextImpl final : JobListener, RunningOperationOwner, PlannerOwner, StarterOwner {
 public:
  using Store = StoreDirectory::Store;

  ContextImpl(std::shared_ptr<Store> store, ContextOptions options);
  explicit ContextImpl(Setup setup);
  ~ContextImpl();

  // Opens the devices, agrees with rank 0, publishes this rank's record. Throws, and tells the
  // other ranks why.
  void join();
  // Breaks the context, for a reason outside of it. Callers hold the lock.
  void fail(const absl::Status& why) { break_context(why, static_cast<uint32_t>(setup_.rank())); }
  // Sets the function that is called, once, when the context breaks. It must stay valid as long as
  // the context, or be removed by setting null. Callers hold the lock.
  void set_on_broken(std::function<void(const absl::Status&)> on_broken) {
    on_broken_ = std::move(on_broken);
  }

  // Returns the object that users hold.
  static std::shared_ptr<Context> in_context(std::unique_ptr<ContextImpl> impl);

  // Does what Context::split does. Returns null if the color is negative. Throws.
  std::unique_ptr<ContextImpl> split(int color, int key);

  // Adds an engine that can be lost: see Engines::add.
  void add_engine(const std::string& name, Engine& engine) { engines_.add(name, engine); }
  // These do what the Planner's functions do. Callers hold the lock.
  void lose_engine(const Engine& engine) { planner_.lose_engine(engine); }
  void regain_engine(const Engine& engine) { planner_.regain_engine(engine); }
  Progress& progress() const { return setup_.progress(); }  // known once it has joined

  // Returns the context that the options are for. Throws if there is none.
  template <typename Options>
  static ContextImpl& of(const Options& options) {
    return RequestMaker::context_of(options).impl();
  }
  // Runs the operation that the options describe. Throws.
  template <typename Options>
  void run(const Options& options) {
    Handle(started(options)).wait();
  }
  // Returns the rank that sent the message. Throws.
  int receive(const RecvOptions& options) {
    Handle handle(started(options));
    handle.wait();
    return handle.source();
  }
  template <typename Options>
  Handle run_async(const Options& options) {
    Handle handle(started(options));
    progress().nobody_waits();
    return handle;
  }

  // Returns whether this process is a fork of the process that made the context. Then nothing here
  // may be touched, not even to destroy it, since its locks may be held by threads that do not
  // exist in this process.
  bool is_inherited() const { return mark_.is_inherited(); }
  void check_process() const;  // throws if so

  const ContextOptions& options() const { return setup_.options; }
  std::vector<RailStats> rails() const;
  BalanceStats balance() const;

 private:
  using Operations = Planner::Operations;

  // JobListener
  void on_abort(const wire::Abort& abort) override;
  void on_roll_call(const wire::RollCall& call) override;
  // All parts report here that the context cannot go on: every operation fails, and the other
  // ranks are told. Does not throw.
  void on_failed(const absl::Status& why) override;

  // RunningOperationOwner
  void on_operation_slow(const RunningOperation& operation) override;
  void on_operation_overdue(const RunningOperation& operation) override {
    roll_calls_.ask_who_is_absent(operation.request());
  }
  bool is_cut_off() const override { return roster_.is_cut_off(); }
  std::string absent(const RunningOperation& operation) const override {
    return roll_calls_.absent(operation.id());
  }
  std::vector<int> missing(const RunningOperation& operation) const override {
    return roll_calls_.missing(operation.id(), operation.awaited_ranks());
  }
  void on_operation_over(RunningOperation& operation) override;
  void on_engine_lost(int lane) override { planner_.on_engine_lost(lane); }
  std::string why_frozen() const override { return planner_.why_frozen(); }

  // PlannerOwner
  bool has_started(const OperationId& operation) const override;
  void on_released() override;
  void on_set_up_wanted() override { starter_.want_set_up(); }

  // StarterOwner
  std::vector<int> unknown_peers(const RunningOperation& operation) const override;
  void launch(const std::shared_ptr<RunningOperation>& operation) override;
  void set_up() override { planner_.set_up(); }

  void join_group();
  void refuse(absl::string_view why);
  void enter();
  void leave();
  void sum(std::vector<uint64_t>& words, Nanos deadline);

  // Starts the operation that the options describe. If there is no memory for it the context
  // breaks, so that the other ranks do not wait for this one.
  template <typename Options>
  std::shared_ptr<RunningOperation> started(const Options& options) {
    requests_.check_tag(options);
    try {
      return start(requests_.make(options));
    } catch (const std::bad_alloc&) {
      give_up(caught_status());
    }
  }
  std::shared_ptr<RunningOperation> start(Request request);
  [[noreturn]] void give_up(const absl::Status& why);
  // Under the lock:
  void begin(const std::shared_ptr<RunningOperation>& operation);
  void launch_in_turn(const std::shared_ptr<RunningOperation>& operation);
  void for_each_peer(const RunningOperation& operation,
                     absl::FunctionRef<void(int rank)> call) const;
  bool knows_peers(const RunningOperation& operation) const;
  absl::Status given_up() const;
  void break_context(const absl::Status& why, uint32_t first_rank);
  // If ranks are lost, breaks the context after a moment (see gather()); otherwise at once.
  void on_loss(const absl::Status& why, uint32_t first_rank);
  void gather(const absl::Status& why, uint32_t first_rank);
  // Returns the error with the lost ranks added; unchanged if there is no memory for them.
  absl::Status with_lost(const absl::Status& why) const;
  // Tells the other ranks of the failure.
  void tell_of(const absl::Status& loss, uint32_t first_rank);

  ForkMark mark_;
  Setup setup_;
  PointToPoint point_to_point_{*this};
  RequestMaker requests_;

  // Under Progress's lock:
  absl::Status broken_;
  std::function<void(const absl::Status&)> on_broken_;
  absl::Status loss_;           // an error: the context is about to break for it
  uint32_t loss_found_by_ = 0;  // the rank that found the first loss
  std::optional<Alarm> loss_alarm_;
  Operations running_;  // collectives that are not over, in the order of their calls
  Operations held_;     // the running_ ones that wait until a plan is agreed on
  HostsEngine hosts_;
  Engines engines_;
  Roster roster_;
  RollCalls roll_calls_;
  Planner planner_;
  Starter starter_;
};

}  // namespace nezha
