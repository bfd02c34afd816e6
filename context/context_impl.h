// What is behind nezha::Context.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/engine.h"
#include "collectives/hosts/hosts_engine.h"
#include "context/record.h"
#include "context/roll_call.h"
#include "context/running_operation.h"
#include "context/settings.h"
#include "nezha/context.h"
#include "nezha/handle.h"
#include "transport/endpoint.h"

namespace gloo::rendezvous {
class Store;
}

namespace nezha {

class ContextImpl final : JobListener, RunningOperationOwner {
 public:
  using Store = ::gloo::rendezvous::Store;

  ContextImpl(std::shared_ptr<Store> store, ContextOptions options);
  ~ContextImpl();

  // Opens the devices, agrees with rank 0, publishes this rank's record. Throws, and tells the
  // other ranks why.
  void join();

  // Run one allreduce. Throw.
  void allreduce(const AllreduceOptions& options);
  Handle allreduce_async(const AllreduceOptions& options);

  const ContextOptions& options() const { return options_; }
  std::vector<RailStats> rails() const;

 private:
  // JobListener
  void on_abort(const wire::Abort& abort) override;
  void on_roll_call(const wire::RollCall& call) override;

  // RunningOperationOwner
  void on_operation_failed(const absl::Status& why) override;
  void on_operation_slow(RunningOperation& operation) override;
  void on_operation_overdue(RunningOperation& operation) override;
  std::string absent(const RunningOperation& operation) const override;
  void on_operation_over(RunningOperation& operation) override;

  void join_group();
  void find_rails();
  void refuse_unless(const absl::Status& status) const;
  void open_devices();
  Record own_record() const;
  absl::StatusOr<Record> read_record(int rank, Nanos deadline);
  void agree(const Record& rank0, AgreedSettings& settings) const;
  void check_slices(const Record& rank0) const;
  // Makes the channel to that rank. Reads the store, so not under the lock.
  absl::Status resolve(int rank, Nanos deadline);

  void check(const AllreduceOptions& options) const;
  RunningOperation::Request request(const AllreduceOptions& options) const;
  void fold_inputs(const AllreduceOptions& options, RunningOperation::Request& request) const;
  std::shared_ptr<RunningOperation> start(const AllreduceOptions& options);
  // Under the lock:
  void launch(RunningOperation& operation);
  int unknown_peer(const RunningOperation& operation) const;  // -1: its peers are known
  std::vector<Slice> slices(const Operation& operation) const;
  void start_later(const std::shared_ptr<RunningOperation>& operation);

  void run_starter();
  // Under the lock:
  void tell(const RunningOperation& operation, wire::RollCallKind kind);
  // Fails if a rank is known to call another one by this operation's tag.
  void check_roll_call(uint32_t tag, uint64_t ordinal);
  // Under the lock: all operations fail, and the other ranks are told.
  void break_context(const absl::Status& why, uint32_t first_rank);

  std::shared_ptr<Endpoint> endpoint_;
  std::shared_ptr<Store> store_;
  std::timed_mutex store_mutex_;            // Gloo's stores are not thread-safe
  ContextOptions options_;                  // with all that was not given
  Algorithm algorithm_ = Algorithm::kAuto;  // of operations that choose none
  std::string rank_of_;                     // "rank 1 of 4"
  ChosenInterfaces chosen_;                 // by rail name, if the rails are "auto"
  UniqueId job_;
  std::vector<Rail> rails_;  // in the order of options_.rails

  // Under Progress's lock:
  Group group_;
  std::vector<std::shared_ptr<RunningOperation>> running_;
  std::deque<std::shared_ptr<RunningOperation>> to_start_;  // of running_; in order
  bool starting_ = false;                                   // starter_ has work
  bool closing_ = false;
  absl::Status broken_;
  RollCall roll_call_;
  HostsEngine hosts_;

  std::thread starter_;
};

}  // namespace nezha
