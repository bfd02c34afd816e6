// SPDX-License-Identifier: Apache-2.0
#include "interop/torch/csrc/workers.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace nezha_torch {
namespace {

constexpr size_t kKept = 2;
constexpr size_t kMost = 256;
constexpr std::chrono::milliseconds kPatience{10};  // until a waiting job gets a new thread
constexpr std::chrono::seconds kLinger{10};         // until an extra thread without a job ends
constexpr std::chrono::seconds kStop{1};

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

void Workers::prepare() {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return;
  if (!is_watched_) {
    std::thread([this] { watch(); }).detach();
    is_watched_ = true;
  }
  for (; threads_ < kKept; ++threads_) std::thread([this] { serve(); }).detach();
}

bool Workers::run(std::list<Job>& job) noexcept {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return false;
  jobs_.splice(jobs_.end(), job);
  has_job_.notify_one();
  if (are_all_busy()) all_busy_.notify_one();
  return true;
}

void Workers::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!has_job_.wait_for(lock, kLinger, [this] { return !jobs_.empty(); })) {
      if (threads_ == kKept) continue;
      --threads_;
      return;
    }
    std::list<Job> job;
    job.splice(job.end(), jobs_, jobs_.begin());
    ++begun_;
    ++busy_;
    if (are_all_busy()) all_busy_.notify_one();
    lock.unlock();
    job.front()(false);
    job.clear();  // destroys the job without the lock
    lock.lock();
    if (--busy_ == 0 && jobs_.empty()) is_idle_.notify_all();
  }
}

// The thread that hands a job over may hold a lock that all of nezha needs, so this thread starts
// the extra ones. It does so only if no job has begun for a while: many short jobs need no more
// threads.
void Workers::watch() {
  std::unique_lock lock(mutex_);
  for (;;) {
    all_busy_.wait(lock, [this] { return are_all_busy(); });
    const uint64_t begun = begun_;
    lock.unlock();
    std::this_thread::sleep_for(kPatience);
    lock.lock();
    if (begun_ == begun && are_all_busy() && threads_ < kMost) add_thread(lock);
  }
}

void Workers::add_thread(std::unique_lock<std::mutex>& lock) {
  ++threads_;
  lock.unlock();
  bool is_started = true;
  try {
    std::thread([this] { serve(); }).detach();
  } catch (const std::system_error&) {
    is_started = false;  // the jobs still wait, so watch() tries again
  }
  lock.lock();
  if (!is_started) --threads_;
}

void Workers::stop() {
  std::list<Job> left;
  {
    std::unique_lock lock(mutex_);
    is_idle_.wait_for(lock, kStop, [this] { return busy_ == 0 && jobs_.empty(); });
    is_stopped_ = true;
    left.swap(jobs_);
  }
  for (const Job& job : left) job(true);
}

bool Workers::is_stopped() {
  const std::lock_guard lock(mutex_);
  return is_stopped_;
}

}  // namespace nezha_torch
