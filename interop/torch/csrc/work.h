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

// The operations of a process group that are not over. They are kept here, so that one goes on
// which its caller has dropped. Thread-safe.
class InFlight {
 public:
  void add(c10::intrusive_ptr<Work> work);
  // Null if it is not here any more.
  c10::intrusive_ptr<Work> take(const Work* work);
  // Those that are neither sends nor receives.
  std::vector<c10::intrusive_ptr<Work>> collectives();

  // From here on, all that this thread adds is put on a list, which is empty at first.
  void start_list();
  // Returns what is on this thread's list, also what is over, and ends the list. Throws c10::Error
  // if it has none.
  std::vector<c10::intrusive_ptr<Work>> end_list();
  // Ends all threads' lists.
  void drop_lists();

 private:
  std::mutex mutex_;
  std::unordered_map<std::thread::id, std::vector<c10::intrusive_ptr<Work>>> lists_;
  std::unordered_map<const Work*, c10::intrusive_ptr<Work>> works_;
};

// Made, filled in, and begun by the process group. From then on thread-safe.
//
// A thread that waits drives nezha itself and ends the operation, which is the fastest way. If none
// waits, one of the Workers ends it. To end is to copy results back, to let go of the tensors, and
// to complete the future, whose callbacks may be the program's.
class Work final : public c10d::Work {
 public:
  Work(std::shared_ptr<InFlight> in_flight, int rank, c10d::OpType type, const char* title,
       const std::vector<at::Tensor>& inputs);

  // To be set before it begins.
  Buffers buffers;                   // what the operation reads and writes
  std::vector<Tensors> outputs;      // the caller's, in which the result is; often one list
  std::function<void()> before_end;  // may block, and may throw the operation's error
  std::function<void()> on_abort;    // of an operation without a handle: makes it fail soon

  // The operation has been started. It is this object's from here on.
  void begin(nezha::Handle handle);
  // The operation is this function, which blocks until it is over. It runs in one of the Workers;
  // if these have stopped, since the process ends, the operation fails.
  void begin(std::function<void()> operation);

  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  // Throws std::runtime_error if it is not over by then, which does the operation no harm. A
  // timeout of 0 or less is none.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override {}
  // The operation fails, and the process group is broken, unless the operation is over.
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
  std::list<Workers::Job> job_;    // what a worker is to do, until it is handed over
  c10::intrusive_ptr<Work> kept_;  // this object, while a worker is to end it
  bool has_handle_ = false;
  std::atomic<bool> is_driven_{false};  // by a thread that waits, and will end it
  std::atomic<bool> is_ending_{false};
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // under mutex_; null: nobody has asked for it
};

// The process group's operations return none but such works.
inline c10::intrusive_ptr<Work> as_own(const c10::intrusive_ptr<c10d::Work>& work) {
  return c10::static_intrusive_pointer_cast<Work>(work);
}

}  // namespace nezha_torch
