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

// The process's. A job may block, as a program's callback does that waits for another operation.
// Two threads run the jobs. If a job has to wait because all threads are blocked, there is another
// thread after 10 ms, up to 256 of them; those that have nothing to do for 10 s end.
class Workers {
 public:
  // It is told whether the workers have stopped. Then it must not block: nothing may be begun.
  using Job = std::function<void(bool is_stopped)>;

  // The object lives as long as the process. A child of fork() has one of its own.
  static Workers& get();

  // Starts the threads, if that is not done yet. Thread-safe. Throws std::system_error if the
  // process can have no more threads. To be called before run() is.
  void prepare();

  // Takes the job out of the list, whose only one it is. Thread-safe; it does not block, takes no
  // memory and starts no thread. Returns false after stop(), and leaves the job where it is.
  bool run(std::list<Job>& job) noexcept;

  // Returns when all jobs are over, at the latest after a second. From then on no job begins: those
  // that still wait are called here, and told so. The caller must not hold what a job may need, as
  // Python's lock.
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
  std::list<Job> jobs_;  // those that wait
  uint64_t begun_ = 0;   // jobs so far
  size_t threads_ = 0;   // that run jobs
  size_t busy_ = 0;      // threads that are in a job
  bool is_watched_ = false;
  bool is_stopped_ = false;
};

}  // namespace nezha_torch
