// SPDX-License-Identifier: Apache-2.0
// ContextImpl is behind nezha::Context. It has a part for each job:
//
//   Setup         what the context is made of
//   Joining       how it comes to be
//   Roster        the ranks, and the channels that lead to them
//   RequestMaker  what the options of a collective ask for
//   Starter       operations whose peers are not known yet
//   PointToPoint  the sends and receives
//   Planner       by which plan operations run, and what they tell of it
//   Engines       engines that can be lost; Recovery is what is done without them
//   RollCalls     what ranks tell each other of operations that take long
//
// It keeps the life of the operations and the end of the context.
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
  // Under the lock: the context breaks for a reason that lies outside of it.
  void fail(const absl::Status& why) { break_context(why, static_cast<uint32_t>(setup_.rank())); }
  // Under the lock: who is told, once, when the context breaks. It stays as long as the context
  // does, or takes its leave by null.
  void set_on_broken(std::function<void(const absl::Status&)> on_broken) {
    on_broken_ = std::move(on_broken);
  }

  // Returns the object that users hold.
  static std::shared_ptr<Context> in_context(std::unique_ptr<ContextImpl> impl);

  // See Context::split. Null if the color is negative. Throws.
  std::unique_ptr<ContextImpl> split(int color, int key);

  // Engines beside the hosts', which can be lost: see Engines::add.
  void add_engine(const std::string& name, Engine& engine) { engines_.add(name, engine); }
  // Under the lock: see Planner.
  void lose_engine(const Engine& engine) { planner_.lose_engine(engine); }
  void regain_engine(const Engine& engine) { planner_.regain_engine(engine); }
  Progress& progress() const { return setup_.progress(); }  // once it has joined

  // The context that the options are for. Throws if there is none.
  template <typename Options>
  static ContextImpl& of(const Options& options) {
    return RequestMaker::context_of(options).impl();
  }
  // Run the operation that the options are of. Throw.
  template <typename Options>
  void run(const Options& options) {
    Handle(started(options)).wait();
  }
  // Returns the rank that the message has come from.
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

  // Whether this process is a fork of the one that it was made by: then nothing here may be
  // touched, not even to destroy it. Its locks may be held by threads that this process does not
  // have.
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

  // The operation that the options are of. If there is no memory for it the context breaks: the
  // other ranks are not to wait for this one.
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
  // Breaks it in a moment, if ranks are lost.
  void on_loss(const absl::Status& why, uint32_t first_rank);
  void gather(const absl::Status& why, uint32_t first_rank);
  // The error with the ranks that are lost; as it is if there is no memory for them.
  absl::Status with_lost(const absl::Status& why) const;
  // Tells the other ranks.
  void tell_of(const absl::Status& loss, uint32_t first_rank);

  ForkMark mark_;
  Setup setup_;
  PointToPoint point_to_point_{*this};
  RequestMaker requests_;

  // Under Progress's lock:
  absl::Status broken_;
  std::function<void(const absl::Status&)> on_broken_;
  absl::Status loss_;           // for which it is about to break
  uint32_t loss_found_by_ = 0;  // the rank that found the first one
  std::optional<Alarm> loss_alarm_;
  Operations running_;  // collectives that are not over, in the order of their calls
  Operations held_;     // those of them that wait until a plan is agreed on
  HostsEngine hosts_;
  Engines engines_;
  Roster roster_;
  RollCalls roll_calls_;
  Planner planner_;
  Starter starter_;
};

}  // namespace nezha
