// SPDX-License-Identifier: Apache-2.0
// An operation of a process group, as PyTorch's Work.
#pragma once

#include <nezha/handle.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <unordered_map>
#include <vector>

#include "interop/torch/csrc/tensors.h"
#include "interop/torch/csrc/workers.h"

namespace nezha_torch {

class Work;

// The operations of a process group that are not over. This keeps them alive, so that an operation
// goes on even if its caller drops it. Thread-safe.
class InFlight {
 public:
  void add(c10::intrusive_ptr<Work> work);
  // Removes and returns the work, or returns null if it is not here any more.
  c10::intrusive_ptr<Work> take(const Work* work);
  // Returns the operations that are neither sends nor receives.
  std::vector<c10::intrusive_ptr<Work>> collectives();

  // Starts an empty list, to which all works that this thread adds from now on are added, too.
  void start_list();
  // Returns this thread's list, including works that are over, and ends the list. Throws c10::Error
  // if the thread has none.
  std::vector<c10::intrusive_ptr<Work>> end_list();
  // Ends all threads' lists.
  void drop_lists();

 private:
  std::mutex mutex_;
  std::unordered_map<std::thread::id, std::vector<c10::intrusive_ptr<Work>>> lists_;
  std::unordered_map<const Work*, c10::intrusive_ptr<Work>> works_;
};

// The process group makes a work, fills it in, and begins it. From then on it is thread-safe.
//
// A thread that waits drives nezha itself and ends the operation, which is the fastest way. If no
// thread waits, one of the Workers ends it. Ending an operation means to copy results back, to
// release the tensors, and to complete the future, whose callbacks may be the program's.
class Work final : public c10d::Work {
 public:
  Work(std::shared_ptr<InFlight> in_flight, int rank, c10d::OpType type, const char* title,
       const std::vector<at::Tensor>& inputs);

  // These are set before the work begins.
  Buffers buffers;                   // what the operation reads and writes
  std::vector<Tensors> outputs;      // the caller's tensors for the result; often one list
  std::function<void()> before_end;  // may block, and may throw the operation's error
  std::function<void()> on_abort;    // makes an operation without a handle fail soon

  // Takes over an operation that has been started.
  void begin(nezha::Handle handle);
  // The operation is this function, which blocks until it is over. It runs in one of the Workers.
  // If these have stopped because the process ends, the operation fails.
  void begin(std::function<void()> operation);

  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  // Throws std::runtime_error if the operation is not over after `timeout`; the operation goes on.
  // A timeout of 0 or less means no limit.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override {}
  // Makes the operation fail and the process group break, unless the operation is over.
  void abort() override;
  bool is_composite() const { return !has_handle_; }
  // At the process's end, when the Workers have stopped, this waits until the operation is over.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  c10::intrusive_ptr<Work> self();
  void hand_over() noexcept;
  void drive(std::chrono::steady_clock::time_point deadline);
  void end(std::exception_ptr error);
  void complete(c10::ivalue::Future& future) const;
  [[noreturn]] void give_up(std::chrono::milliseconds timeout) const;

  const std::shared_ptr<InFlight> in_flight_;
  nezha::Handle handle_;
  std::list<Workers::Job> job_;    // ends the operation in a worker; empty once handed over
  c10::intrusive_ptr<Work> kept_;  // keeps this object alive until a worker ends it
  bool has_handle_ = false;
  std::atomic<bool> is_driven_{false};  // a thread waits, and will end the operation
  std::atomic<bool> is_ending_{false};
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // under mutex_; null: nobody has asked for it
};

// All works that the process group's operations return are of this class.
inline c10::intrusive_ptr<Work> as_own(const c10::intrusive_ptr<c10d::Work>& work) {
  return c10::static_intrusive_pointer_cast<Work>(work);
}

}  // namespace nezha_torch
