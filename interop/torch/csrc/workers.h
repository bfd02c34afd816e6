// SPDX-License-Identifier: Apache-2.0
// The threads that end operations for which nobody waits.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace nezha_torch {

// The process's. A job may block, as a program's callback does that waits for another operation: a
// job that finds no idle thread gets a new one, so jobs never wait for each other. Threads stay.
class Workers {
 public:
  // The object lives as long as the process. A child of fork() has one of its own.
  static Workers& get();

  // Thread-safe. Does not block, and does not throw but for want of memory or threads.
  void run(std::function<void()> job);

  // From here on no job begins. Returns when those that run are over, at the latest after a second.
  // The caller must not hold what a job may need, as Python's lock.
  void stop();

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable has_job_;
  std::condition_variable is_idle_;
  std::deque<std::function<void()>> jobs_;
  size_t idle_ = 0;  // threads that wait for a job
  size_t busy_ = 0;  // threads that run one
  bool is_stopped_ = false;
};

}  // namespace nezha_torch
