// SPDX-License-Identifier: Apache-2.0
// The threads that end operations for which nobody waits.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>

namespace nezha_torch {

// The workers of the process. A job may block, for example in a program's callback that waits for
// another operation. Two threads run the jobs. If a job waits for 10 ms because all threads are
// blocked, another thread starts, up to 256 in all. Extra threads that have nothing to do for 10 s
// end.
class Workers {
 public:
  // The argument says whether the workers have stopped. If so, the job must not block or begin
  // anything.
  using Job = std::function<void(bool is_stopped)>;

  // Returns the process's object, which is never destroyed. A child of fork() has one of its own.
  static Workers& get();

  // Starts the threads, if that is not done yet. Must be called before run(). Thread-safe. Throws
  // std::system_error if the process can have no more threads.
  void prepare();

  // Takes the job out of the list, which has no other. Does not block, allocates no memory and
  // starts no thread. After stop() it returns false and leaves the job in the list. Thread-safe.
  bool run(std::list<Job>& job) noexcept;

  // Returns when all jobs are over, at the latest after a second. From then on no job begins; jobs
  // that still wait are called here, and told that the workers have stopped. The caller must not
  // hold anything that a job may need, such as Python's lock.
  void stop();
  bool is_stopped();

 private:
  void serve();
  void watch();
  bool are_all_busy() const { return !jobs_.empty() && busy_ == threads_; }
  void add_thread(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable has_job_;
  std::condition_variable is_idle_;
  std::condition_variable all_busy_;
  std::list<Job> jobs_;  // jobs that wait
  uint64_t begun_ = 0;   // jobs begun so far
  size_t threads_ = 0;   // threads that serve jobs
  size_t busy_ = 0;      // threads that are in a job
  bool is_watched_ = false;
  bool is_stopped_ = false;
};

}  // namespace nezha_torch
