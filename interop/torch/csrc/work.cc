// SPDX-License-Identifier: Apache-2.0
#include "interop/torch/csrc/work.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace nezha_torch {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// ---- InFlight ----------------------------------------------------------------------------------

void InFlight::add(c10::intrusive_ptr<Work> work) {
  const std::lock_guard lock(mutex_);
  const auto list = lists_.find(std::this_thread::get_id());
  if (list != lists_.end()) list->second.push_back(work);
  const Work* key = work.get();
  works_.emplace(key, std::move(work));
}

c10::intrusive_ptr<Work> InFlight::take(const Work* work) {
  const std::lock_guard lock(mutex_);
  auto node = works_.extract(work);
  if (node.empty()) return {};
  return std::move(node.mapped());
}

std::vector<c10::intrusive_ptr<Work>> InFlight::collectives() {
  const std::lock_guard lock(mutex_);
  std::vector<c10::intrusive_ptr<Work>> found;
  for (const auto& entry : works_) {
    if (!c10d::isP2POp(entry.second->retrieveOpType())) found.push_back(entry.second);
  }
  return found;
}

void InFlight::start_list() {
  std::vector<c10::intrusive_ptr<Work>> old;  // a program that caught an error may have left one
  const std::lock_guard lock(mutex_);
  old.swap(lists_[std::this_thread::get_id()]);
}

std::vector<c10::intrusive_ptr<Work>> InFlight::end_list() {
  const std::lock_guard lock(mutex_);
  auto node = lists_.extract(std::this_thread::get_id());
  TORCH_CHECK(!node.empty(), "endCoalescing is without a startCoalescing of the same thread");
  return std::move(node.mapped());
}

void InFlight::drop_lists() {
  decltype(lists_) old;
  const std::lock_guard lock(mutex_);
  old.swap(lists_);
}

// ---- Work --------------------------------------------------------------------------------------

Work::Work(std::shared_ptr<InFlight> in_flight, int rank, c10d::OpType type, const char* title,
           const std::vector<at::Tensor>& inputs)
    : c10d::Work(rank, type, title, inputs), in_flight_(std::move(in_flight)) {}

c10::intrusive_ptr<Work> Work::self() {
  return c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this);
}

void Work::begin(nezha::Handle handle) {
  handle_ = std::move(handle);
  has_handle_ = true;
  job_.emplace_back([this](bool) {
    const auto self = std::move(kept_);
    end(handle_.error());
  });
  in_flight_->add(self());
  // The function is called under a lock of nezha's, before any thread sees that the operation is
  // over. So this work is still in flight, and a thread that drives it is going to end it.
  handle_.notify([this] {
    if (!is_driven_) hand_over();
  });
}

// If the workers have stopped, a thread that waits for the operation ends it.
void Work::hand_over() noexcept {
  kept_ = self();
  if (!Workers::get().run(job_)) kept_.reset();
}

void Work::begin(std::function<void()> operation) {
  std::list<Workers::Job> job;
  job.emplace_back([work = self(), operation = std::move(operation)](bool is_stopped) {
    std::exception_ptr error;
    try {
      if (is_stopped) {
        throw std::runtime_error(c10d::opTypeToString(work->opType_) + " of rank " +
                                 std::to_string(work->rank_) +
                                 " does not begin: the process is ending, and such an operation "
                                 "needs a thread of nezha_torch's; start it before the exit");
      }
      operation();
    } catch (...) {
      error = std::current_exception();
    }
    work->end(error);
  });
  in_flight_->add(self());
  if (!Workers::get().run(job)) job.front()(true);
}

void Work::drive(steady_clock::time_point deadline) {
  try {
    if (deadline == steady_clock::time_point::max()) return handle_.wait();
    const auto left = deadline - steady_clock::now();
    handle_.wait(std::max(milliseconds(0), std::chrono::ceil<milliseconds>(left)));
  } catch (...) {
    // The operation is over, and the handle keeps its error.
  }
}

bool Work::wait(milliseconds timeout) {
  const bool is_limited = timeout.count() > 0;
  const auto deadline =
      is_limited ? steady_clock::now() + timeout : steady_clock::time_point::max();
  const auto self = this->self();
  std::unique_lock lock(mutex_);
  if (!completed_ && has_handle_ && !is_driven_.exchange(true)) {
    lock.unlock();
    drive(deadline);
    is_driven_ = false;
    if (handle_.test()) end(handle_.error());
    lock.lock();
  }
  const auto is_over = [this] { return completed_; };
  if (!is_limited) {
    cv_.wait(lock, is_over);
  } else if (!cv_.wait_until(lock, deadline, is_over)) {
    give_up(timeout);
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

void Work::give_up(milliseconds timeout) const {
  throw std::runtime_error("Operation timed out: " + c10d::opTypeToString(opType_) + " of rank " +
                           std::to_string(rank_) + " is not over after " +
                           std::to_string(timeout.count()) +
                           " ms. It goes on, and may be waited for again.");
}

// The first thread that calls this ends the work. It holds no lock, since releasing a tensor and
// calling the program's callbacks may take Python's lock.
void Work::end(std::exception_ptr error) {
  if (is_ending_.exchange(true)) return;
  try {
    if (!error && before_end) before_end();
    if (!error) buffers.finish();
  } catch (...) {
    error = std::current_exception();
  }
  buffers.clear();
  before_end = nullptr;
  finish(error);
  const auto self = in_flight_->take(this);  // in_flight_ may hold the last reference to this
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    future = future_;
  }
  if (future) complete(*future);
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  if (Workers::get().is_stopped()) {
    try {
      wait(kNoTimeout);
    } catch (...) {
      // The future gets the error.
    }
  }
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  std::vector<c10::Device> devices;
  for (const Tensors& list : outputs) {
    for (const at::Tensor& tensor : list) {
      const c10::Device device = tensor.device();
      const bool is_new = std::find(devices.begin(), devices.end(), device) == devices.end();
      if (!device.is_cpu() && is_new) devices.push_back(device);
    }
  }
  c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
  if (outputs.size() > 1) type = c10::ListType::create(type);
  auto future = c10::make_intrusive<c10::ivalue::Future>(std::move(type), std::move(devices));
  if (!completed_) return future_ = future;  // end() completes it
  lock.unlock();
  complete(*future);
  return future;
}

void Work::complete(c10::ivalue::Future& future) const {
  if (exception_) {
    future.setError(exception_);
  } else if (outputs.size() > 1) {
    future.markCompleted(c10::IValue(outputs));
  } else {
    future.markCompleted(c10::IValue(outputs.empty() ? Tensors() : outputs.front()));
  }
}

int Work::sourceRank() const { return has_handle_ ? handle_.source() : -1; }

std::vector<at::Tensor> Work::result() {
  TORCH_CHECK(isCompleted(), "The result is not there yet: call wait() before result().");
  Tensors all;
  for (const Tensors& list : outputs) all.insert(all.end(), list.begin(), list.end());
  return all;
}

void Work::abort() {
  if (has_handle_) {
    handle_.cancel();
  } else if (on_abort && !isCompleted()) {
    on_abort();
  }
}

}  // namespace nezha_torch
