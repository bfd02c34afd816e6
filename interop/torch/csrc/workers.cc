// SPDX-License-Identifier: Apache-2.0
#include "interop/torch/csrc/workers.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace nezha_torch {
namespace {

std::atomic<Workers*> the_workers{nullptr};

}  // namespace

Workers& Workers::get() {
  static const bool is_made = [] {
    the_workers = new Workers;
    // The child has none of the threads, and any of them may hold the old object's lock.
    pthread_atfork(nullptr, nullptr, [] { the_workers = new Workers; });
    return true;
  }();
  static_cast<void>(is_made);
  return *the_workers;
}

void Workers::run(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return;
  jobs_.push_back(std::move(job));
  if (idle_ >= jobs_.size()) {
    has_job_.notify_one();
  } else {
    std::thread([this] { serve(); }).detach();
  }
}

void Workers::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    has_job_.wait(lock, [this] { return !jobs_.empty() && !is_stopped_; });
    --idle_;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    ++busy_;
    lock.unlock();
    job();
    job = nullptr;  // what it holds goes without the lock
    lock.lock();
    if (--busy_ == 0) is_idle_.notify_all();
  }
}

void Workers::stop() {
  std::unique_lock lock(mutex_);
  is_stopped_ = true;
  is_idle_.wait_for(lock, std::chrono::seconds(1), [this] { return busy_ == 0; });
}

}  // namespace nezha_torch
