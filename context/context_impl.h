// SPDX-License-Identifier: Apache-2.0
// What is behind nezha::Context.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "collectives/engine.h"
#include "collectives/hosts/hosts_engine.h"
#include "common/fork.h"
#include "common/hash_map.h"
#include "common/log.h"
#include "common/out_of_memory.h"
#include "context/control_plane.h"
#include "context/directory.h"
#include "context/record.h"
#include "context/repair.h"
#include "context/roll_call.h"
#include "context/running_operation.h"
#include "context/settings.h"
#include "flare_offload/engine/flare_engine.h"
#include "nezha/allgather.h"
#include "nezha/allreduce.h"
#include "nezha/alltoall.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/context.h"
#include "nezha/gather.h"
#include "nezha/handle.h"
#include "nezha/reduce.h"
#include "nezha/reduce_scatter.h"
#include "nezha/scatter.h"
#include "transport/endpoint.h"

namespace nezha {

class ContextImpl final : JobListener,
                          RunningOperationOwner,
                          ControlPlaneOwner,
                          flare::FlareEngineOwner {
 public:
  using Store = Directory::Store;

  ContextImpl(std::shared_ptr<Store> store, ContextOptions options);
  ~ContextImpl();

  // Opens the devices, agrees with rank 0, publishes this rank's record. Throws, and tells the
  // other ranks why.
  void join();

  // Engines beside the hosts', which can be lost, by names that no rail has; the same, in the same
  // order, on all ranks. Before join(). They stay longer than the context.
  void add_engine(const std::string& name, Engine& engine) { engines_.emplace_back(name, &engine); }
  // The engine carries nothing at this rank any more, or does so again. Under Progress's lock.
  Progress& progress() const { return endpoint_->progress(); }  // once it has joined
  void lose_engine(const Engine& engine);
  void regain_engine(const Engine& engine);

  // See Context::split. Null if the color is negative. Throws.
  std::unique_ptr<ContextImpl> split(int color, int key);

  // The context that the options are for. Throws if there is none.
  static ContextImpl& of(const CollectiveOptions& options);
  // Run the operation that the options are of. Throw.
  template <typename Options>
  void run(const Options& options) {
    Handle(started(options)).wait();
  }
  template <typename Options>
  Handle run_async(const Options& options) {
    Handle handle(started(options));
    endpoint_->progress().nobody_waits();
    return handle;
  }

  // Whether this process is a fork of the one that it was made by: then nothing here may be
  // touched, not even to destroy it. Its locks may be held by threads that this process does not
  // have.
  bool is_inherited() const { return mark_.is_inherited(); }
  void check_process() const;  // throws if so

  const ContextOptions& options() const { return options_; }
  std::vector<RailStats> rails() const;
  BalanceStats balance() const;

 private:
  // Of those ranks of `parent`, which this one is among.
  ContextImpl(const ContextImpl& parent, const std::vector<int>& group, UniqueId job);

  // JobListener
  void on_abort(const wire::Abort& abort) override;
  void on_roll_call(const wire::RollCall& call) override;
  void on_peer_gone(const absl::Status& why) override;

  // RunningOperationOwner
  void on_operation_failed(const absl::Status& why) override;
  void on_operation_slow(RunningOperation& operation) override;
  void on_operation_overdue(RunningOperation& operation) override;
  bool is_cut_off() const override;
  std::string absent(const RunningOperation& operation) const override;
  std::vector<int> missing(const RunningOperation& operation) const override;
  void on_engine_lost(int lane, const absl::Status& why) override;
  std::string why_frozen() const override;
  void on_operation_over(RunningOperation& operation) override;

  // ControlPlaneOwner
  bool has_started(const OperationId& operation) const override;
  void on_released() override;
  std::vector<FrozenPart> on_freeze(int lane) override;
  absl::Status on_recover(int lane, uint32_t epoch, const std::vector<Repair>& repairs) override;
  double rate(RailMask rails, bool also_tried) const override;
  void on_nonsense(const absl::Status& why) override;

  // FlareEngineOwner
  void on_engine_up() override { regain_engine(*flare_); }
  void on_engine_down() override { lose_engine(*flare_); }
  void on_engine_nonsense(const absl::Status& why) override { on_operation_failed(why); }
  bool has_started(uint32_t tag, uint64_t ordinal) const override {
    return has_started(OperationId{tag, ordinal});
  }
  bool is_recovering() const override { return control_ != nullptr && control_->is_recovering(); }

  void join_group();
  void leave();
  void take_switch_rail();
  void open_switch_rail();
  void find_rails();
  // Throws InvalidArgument, or IoError if this process or machine has run out of something.
  void refuse(absl::string_view why);
  void refuse_unless(const absl::Status& status) const;
  void open_devices();
  void enter();
  void announce() const;  // not under the lock
  Record own_record() const;
  std::string flare_rail() const;  // as in the record
  absl::StatusOr<Record> read_record(int rank, Nanos deadline);
  void agree(const Record& rank0, AgreedSettings& settings) const;
  void check_slices(const Record& rank0) const;
  // Makes the channel to that rank. Reads the store, so not under the lock.
  absl::Status resolve(int rank, Nanos deadline);
  absl::Status check_reach(const std::map<std::string, std::string>& addresses) const;
  // A rank's number in the directory.
  int listed(int rank) const { return listed_.empty() ? rank : listed_[static_cast<size_t>(rank)]; }

  void sum(std::vector<uint64_t>& words, Nanos deadline);
  void take_channels(const ContextImpl& parent, const std::vector<int>& group);

  void check_tag(const CollectiveOptions& options) const;
  // What the options ask for. Throw.
  RunningOperation::Request request(const AllreduceOptions& options) const;
  RunningOperation::Request request(const ReduceOptions& options) const;
  RunningOperation::Request request(const BroadcastOptions& options) const;
  RunningOperation::Request request(const BarrierOptions& options) const;
  RunningOperation::Request request(const AllgatherOptions& options) const;
  RunningOperation::Request request(const ReduceScatterOptions& options) const;
  RunningOperation::Request request(const AlltoallOptions& options) const;
  RunningOperation::Request request(const AlltoallvOptions& options) const;
  RunningOperation::Request request(const GatherOptions& options) const;
  RunningOperation::Request request(const GathervOptions& options) const;
  RunningOperation::Request request(const ScatterOptions& options) const;
  RunningOperation::Request request(const ScattervOptions& options) const;
  // blocks_requests.cc
  RunningOperation::Request request_blocks(const BlocksOptions& options,
                                           Collective collective) const;
  RunningOperation::Request request_moved(const BlocksOptions& options,
                                          Collective collective) const;
  // `contributes`, `has_result`: whether this rank does and has.
  RunningOperation::Request request_rooted(const RootedOptions& options, Collective collective,
                                           bool contributes, bool has_result) const;
  [[noreturn]] void refuse(absl::string_view collective, absl::string_view why) const;
  int checked_root(absl::string_view collective, int root) const;
  void check(const AllreduceOptions& options) const;
  void check_reduction(absl::string_view collective, const ReductionOptions& options) const;
  void check_alike(absl::string_view collective, size_t elements, size_t output_elements,
                   DataType type, DataType output_type) const;
  void check_vectors(absl::string_view collective, const std::vector<const void*>& inputs,
                     const std::vector<void*>& outputs, size_t elements, DataType type) const;
  // NEZHA_CHECK_POINTERS
  static absl::Status check_pointers(const std::vector<const void*>& inputs,
                                     const std::vector<void*>& outputs, size_t bytes);
  void complete(RunningOperation::Request& request, const CollectiveOptions& options,
                Algorithm asked = Algorithm::kAuto) const;
  void fold_inputs(const AllreduceOptions& options, RunningOperation::Request& request) const;
  std::shared_ptr<RunningOperation> start(RunningOperation::Request request);
  // The operation that the options are of. If there is no memory for it the context breaks: the
  // other ranks are not to wait for this one.
  template <typename Options>
  std::shared_ptr<RunningOperation> started(const Options& options) {
    check_tag(options);
    try {
      return start(request(options));
    } catch (const std::bad_alloc&) {
      give_up(caught_status());
    }
  }
  [[noreturn]] void give_up(const absl::Status& why);
  void begin(const std::shared_ptr<RunningOperation>& operation);
  // Under the lock:
  void launch(const std::shared_ptr<RunningOperation>& operation);
  std::vector<int> unknown_peers(const RunningOperation& operation) const;
  void start_later(const std::shared_ptr<RunningOperation>& operation);
  void wake_starter();
  std::shared_ptr<RunningOperation> next_to_start(std::vector<int>& peers);
  absl::Status resolve(RunningOperation& operation, const std::vector<int>& peers);
  absl::Status confirm_rank();

  void run_starter();
  bool start_next(absl::Status& status);

  // planning.cc. Those of the set-up not under the lock:
  absl::Status load_table();
  void save(const DataLengthTable& table) const;
  void set_up_control();
  absl::Status find_lanes();
  bool is_known(int rank);
  void create_control();
  bool is_planned(const Operation& operation);
  std::optional<RunningOperation::Course> course(const RunningOperation& operation);
  std::vector<RunningOperation::Course::Part> unlearned_parts(const Operation& operation);
  Engine* engine_of(int lane) const;  // null: the hosts'
  int lane_of(const Engine& engine) const;
  bool can_do(const Engine& engine, const Operation& operation);
  absl::Status stand_by(int lane, uint32_t epoch, const Repair& repair, uint32_t number);
  void note_disturbance(RunningOperation& operation);
  void measure(const RunningOperation& operation);
  Nanos idle_before(const RunningOperation& operation) const;
  bool was_beside_bursts(const RunningOperation& operation) const;
  RailMask failed_rails(const RunningOperation& operation);
  // Under the lock:
  void tell(const RunningOperation& operation, wire::RollCallKind kind);
  // Says of which ranks that this one waits for nothing is heard.
  void tell_of_silence(const wire::RollCall& question);
  void deny_silence(const wire::RollCall& claim);
  // Fails if a rank is known to call another one by this operation's tag.
  void check_roll_call(uint32_t tag, uint64_t ordinal);
  // Under the lock: all operations fail, and the other ranks are told.
  void break_context(const absl::Status& why, uint32_t first_rank);
  // Likewise in a moment, if ranks are lost.
  void on_loss(const absl::Status& why, uint32_t first_rank);
  std::vector<int> lost_peers() const;
  std::vector<int> dead_peers() const;
  // Tells the other ranks.
  void tell_of(const absl::Status& loss, uint32_t first_rank);

  ForkMark mark_;
  std::shared_ptr<Endpoint> endpoint_;
  std::shared_ptr<Directory> directory_;
  std::vector<int> listed_;  // the ranks' numbers there, if this context is a part of another
  ContextOptions options_;   // with all that was not given
  Algorithm algorithm_ = Algorithm::kAuto;  // of operations that choose none
  bool checks_pointers_ = false;
  std::string rank_of_;      // "rank 1 of 4"
  RankLog log_;              // whose lines name this rank
  std::string self_;         // this rank and its process, as other ranks' errors name them
  ChosenInterfaces chosen_;  // by rail name, if the rails are "auto"
  UniqueId job_;
  std::vector<Rail> rails_;  // in the order of options_.rails

  struct FailedRails {
    RailMask rails = 0;
    Nanos at = 0;  // when that was last seen
  };

  // Under Progress's lock:
  Group group_;
  std::vector<std::shared_ptr<RunningOperation>> running_;
  std::deque<std::shared_ptr<RunningOperation>> to_start_;  // of running_; in order
  std::vector<std::shared_ptr<RunningOperation>> held_;     // likewise: until a plan is agreed on
  bool starting_ = false;                                   // starter_ has work
  struct Over {
    Nanos at = 0;
    std::optional<SizeClass> size_class;  // of an allreduce
  };
  Over last_over_;              // of all operations
  bool wants_control_ = false;  // which starter_ is to set up
  bool has_wanted_control_ = false;
  int connected_ = 0;  // rank 0: how many ranks its control plane is connected to
  bool closing_ = false;
  absl::Status broken_;
  absl::Status loss_;  // for which it is about to break
  std::optional<Alarm> loss_alarm_;
  RollCall roll_call_;
  HostsEngine hosts_;
  std::optional<flare::FlareOptions> switch_rail_;
  bool is_switch_alone_ = false;                          // no other rail was named
  std::unique_ptr<flare::FlareEngine> flare_;             // null: there is no such rail
  std::vector<std::pair<std::string, Engine*>> engines_;  // behind the rails' lanes
  std::set<std::string> unsupported_;                     // why engines cannot do operations
  std::vector<Retained> retained_;                        // by the engine that is being recovered
  std::vector<std::shared_ptr<Bystander>> bystanders_;
  std::vector<RailMask> seen_;             // by rank: the rails that have had a link to it
  HashMap<int, FailedRails> failed_;       // by rank
  std::unique_ptr<ControlPlane> control_;  // null: there is nothing to learn
  std::optional<DataLengthTable> table_;   // that rank 0 begins with

  std::thread starter_;
  bool is_confirmed_ = false;  // starter_'s: that no other process is this rank
};

}  // namespace nezha
