// What is behind nezha::Context.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "collectives/engine.h"
#include "collectives/hosts/hosts_engine.h"
#include "context/record.h"
#include "context/roll_call.h"
#include "context/running_operation.h"
#include "nezha/allreduce.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/context.h"
#include "nezha/handle.h"
#include "nezha/reduce.h"
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

  // Opens the devices, agrees with rank 0, publishes this rank's record. Throws.
  void join();

  // Run the operation that the options are of. Throw.
  template <typename Options>
  void run(const Options& options) {
    Handle(start(request(options))).wait();
  }
  template <typename Options>
  Handle run_async(const Options& options) {
    Handle handle(start(request(options)));
    endpoint_->progress().nobody_waits();
    return handle;
  }

  const ContextOptions& options() const { return options_; }
  std::vector<RailStats> rails() const;

 private:
  // JobListener
  void on_abort(const wire::Abort& abort) override;
  void on_roll_call(const wire::RollCall& call) override;

  // RunningOperationOwner
  void on_operation_failed(const absl::Status& why) override;
  void on_operation_overdue(RunningOperation& operation) override;
  std::string absent(const RunningOperation& operation) const override;
  void on_operation_over(RunningOperation& operation) override;

  void open_devices();
  Record own_record() const;
  absl::StatusOr<Record> read_record(int rank, Nanos deadline);
  void check_agreement(const Record& rank0) const;
  std::string settings() const;
  // Makes the channel to that rank. Reads the store, so not under the lock.
  absl::Status resolve(int rank, Nanos deadline);

  // What the options ask for. Throw.
  RunningOperation::Request request(const AllreduceOptions& options) const;
  RunningOperation::Request request(const ReduceOptions& options) const;
  RunningOperation::Request request(const BroadcastOptions& options) const;
  RunningOperation::Request request(const BarrierOptions& options) const;
  // `contributes`, `has_result`: whether this rank does and has.
  RunningOperation::Request request_rooted(const RootedOptions& options, Collective collective,
                                           bool contributes, bool has_result) const;
  [[noreturn]] void refuse(absl::string_view collective, absl::string_view why) const;
  void check(const AllreduceOptions& options) const;
  void check_reduction(absl::string_view collective, const ReductionOptions& options) const;
  void check_alike(absl::string_view collective, size_t elements, size_t output_elements,
                   DataType type, DataType output_type) const;
  void check_memory(absl::string_view collective, const std::vector<const void*>& inputs,
                    const std::vector<void*>& outputs, size_t elements, DataType type) const;
  void complete(RunningOperation::Request& request, const CollectiveOptions& options,
                Algorithm asked = Algorithm::kAuto) const;
  void fold_inputs(const AllreduceOptions& options, RunningOperation::Request& request) const;
  std::shared_ptr<RunningOperation> start(RunningOperation::Request request);
  // Under the lock:
  void launch(RunningOperation& operation);
  int unknown_peer(const RunningOperation& operation) const;  // -1: its peers are known
  std::vector<Slice> slices(const Operation& operation) const;
  void start_later(const std::shared_ptr<RunningOperation>& operation);

  void run_starter();
  // Under the lock: all operations fail, and the other ranks are told.
  void break_context(const absl::Status& why, uint32_t first_rank);

  std::shared_ptr<Endpoint> endpoint_;
  std::shared_ptr<Store> store_;
  std::timed_mutex store_mutex_;  // Gloo's stores are not thread-safe
  ContextOptions options_;
  std::string rank_of_;  // "rank 1 of 4"
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
