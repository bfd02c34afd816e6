// SPDX-License-Identifier: Apache-2.0
// PyTorch's backend "nezha": a process group whose operations are nezha's.
#pragma once

#include <nezha/context.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "interop/torch/csrc/version.h"
#include "interop/torch/csrc/work.h"

#if NEZHA_TORCH_AT_LEAST(2, 0)
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

namespace nezha_torch {

#if NEZHA_TORCH_AT_LEAST(2, 0)
using Backend = c10d::Backend;
#else
using Backend = c10d::ProcessGroup;
#endif

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Operations are asynchronous, and return a Work. Thread-safe, but all ranks must start their
// collectives in the same order. Wrong arguments throw c10::Error, and start nothing. nezha's
// errors are nezha::IoError and TimeoutError. In Python each of these is a RuntimeError.
class ProcessGroup final : public Backend {
 public:
  // Returns when all ranks have joined. The store is not used after that. Throws IoError or
  // TimeoutError if they have not joined after `timeout`, which is also the timeout of operations.
  ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
               std::chrono::milliseconds timeout);
  // Operations in flight fail. If the thread holds Python's lock, it releases the lock meanwhile.
  ~ProcessGroup() override;

  const std::string getBackendName() const override { return "nezha"; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  // The barrier also waits for the collectives that this rank began before.
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  // If ranks have not come, all ranks that have come throw a std::runtime_error that names the
  // missing ones, and the process group is broken. If rank 0 has not come, the others wait twice
  // the timeout.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // A message may be shorter than the tensor of its receive, which keeps its elements behind the
  // message.
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

#if NEZHA_TORCH_AT_LEAST(2, 1)
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  // endCoalescing() returns one work for all operations that its thread has begun since the thread
  // called startCoalescing(). Each of the operations was started when it was called.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
#endif

  // In newer versions of PyTorch these override virtual functions. After shutdown() and abort()
  // each operation is refused, and those in flight fail. Both return soon, and may be called again.
  bool supportsCoalescing() const { return true; }
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  void shutdown() { leave(); }
  // The other ranks get an error, too.
  void abort();

  // The sequence number is the number of collectives that this rank has begun.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }

 private:
  c10::intrusive_ptr<Work> make(c10d::OpType type, const char* title, const Tensors& inputs,
                                std::vector<Tensors> outputs);
  template <typename Terms, typename Start>
  WorkPtr begin(c10::intrusive_ptr<Work> work, Terms& terms, std::chrono::milliseconds timeout,
                Start start);
  WorkPtr begin_allgather(c10::intrusive_ptr<Work> work, const at::Tensor& input,
                          const at::Tensor& output, const c10d::AllgatherOptions& options);
  WorkPtr begin_alltoall(c10::intrusive_ptr<Work> work, const at::Tensor& input,
                         std::vector<size_t> input_counts, const at::Tensor& output,
                         std::vector<size_t> output_counts, const c10d::AllToAllOptions& options);
  WorkPtr allreduce_sparse_tensors(Tensors& tensors, const c10d::AllreduceOptions& options);
  WorkPtr receive(c10d::OpType type, const char* title, Tensors& tensors, const int* source,
                  int tag);
  WorkPtr all_of(const char* title, std::vector<c10::intrusive_ptr<Work>> works);
  std::shared_ptr<nezha::Context> context() const;
  void leave();
  // Fails the operations in flight, on all ranks.
  static void break_up(const std::shared_ptr<nezha::Context>& context);
  std::chrono::milliseconds deadline(std::chrono::milliseconds given) const;
  void await_others(std::chrono::milliseconds timeout, bool wait_all_ranks);
  void report_to(int rank, std::chrono::milliseconds timeout);
  // Sends the ranks the list of missing ranks. Returns when they have received it, at the latest at
  // `end`.
  void tell(const std::vector<int>& ranks, const std::vector<int32_t>& missing,
            std::chrono::milliseconds timeout, std::chrono::steady_clock::time_point end);
  nezha::Handle expect_word(int rank, uint64_t tag, std::chrono::milliseconds timeout);
  void send_word(int rank, uint64_t tag, std::chrono::milliseconds timeout);

  std::atomic<std::chrono::milliseconds> timeout_;
  const std::shared_ptr<InFlight> in_flight_ = std::make_shared<InFlight>();
  mutable std::mutex mutex_;
  std::shared_ptr<nezha::Context> context_;  // under mutex_; null: this rank has left the group
  std::atomic<uint64_t> sequence_{0};
  std::atomic<uint32_t> composites_{0};  // collectives of several steps; each gets its own tag
};

}  // namespace nezha_torch
