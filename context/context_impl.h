// What is behind nezha::Context.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/engine.h"
#include "collectives/hosts/hosts_engine.h"
#include "context/record.h"
#include "nezha/context.h"
#include "transport/endpoint.h"

namespace gloo::rendezvous {
class Store;
}

namespace nezha {

class ContextImpl final : AbortListener {
 public:
  using Store = ::gloo::rendezvous::Store;

  ContextImpl(std::shared_ptr<Store> store, ContextOptions options);
  ~ContextImpl();

  // Opens the devices, agrees with rank 0, publishes this rank's record. Throws.
  void join();

  // Runs one allreduce. Throws.
  void allreduce(const AllreduceOptions& options);

  const ContextOptions& options() const { return options_; }
  std::vector<RailStats> rails() const;

 private:
  // One operation in flight: its tasks, and the thread that waits for them.
  class Running final : public TaskOwner {
   public:
    // Both under the lock.
    explicit Running(ContextImpl& of) : context(of) { of.running_.push_back(this); }
    ~Running() { context.running_.remove(this); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    void on_finished(Task& task) override;
    // The fence for all tasks; the operation has failed.
    void fail(const absl::Status& why);

    ContextImpl& context;
    std::vector<std::unique_ptr<Task>> tasks;
    Waiter waiter;
    bool started = false;
    absl::Status status;

   private:
    friend class ContextImpl;
    void finish_if_done();
  };

  void on_abort(const wire::Abort& abort) override;

  Operation check(const AllreduceOptions& options) const;
  void open_devices();
  Record own_record() const;
  absl::StatusOr<Record> read_record(int rank, Nanos deadline);
  void check_agreement(const Record& rank0) const;
  std::string settings() const;
  // Makes the channels to those ranks. Reads the store, so not under the lock.
  absl::Status resolve(const std::vector<int>& peers, Nanos deadline);
  absl::Status resolve(int rank, Nanos deadline);
  std::vector<Slice> slices(const Operation& operation) const;
  void start(Running& running, const Operation& operation, const EnginePlan& plan);
  // Under the lock: all operations fail, and the other ranks are told.
  void break_context(const absl::Status& why, uint32_t first_rank);
  [[noreturn]] void raise(const absl::Status& why) const;
  std::string prefixed(absl::string_view text) const;

  std::shared_ptr<Endpoint> endpoint_;
  std::shared_ptr<Store> store_;
  std::timed_mutex store_mutex_;  // Gloo's stores are not thread-safe
  ContextOptions options_;
  UniqueId job_;
  std::vector<Rail> rails_;  // in the order of options_.rails

  // Under Progress's lock:
  Group group_;
  std::list<Running*> running_;
  absl::Status broken_;
  HostsEngine hosts_;
};

}  // namespace nezha
