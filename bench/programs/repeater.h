// SPDX-License-Identifier: Apache-2.0
// A thread that does one task again and again, whenever it is told to.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace nezha::bench {

class Repeater {
 public:
  explicit Repeater(std::function<void()> task);
  // Waits for the task to end if it is under way.
  ~Repeater();
  Repeater(const Repeater&) = delete;
  Repeater& operator=(const Repeater&) = delete;

  // Lets the task run once.
  void start();
  // Returns when it has run; throws what it threw.
  void wait();

 private:
  enum class State { kIdle, kRunning, kStopping };
  void loop();
  void set(State state);

  const std::function<void()> task_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kIdle;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace nezha::bench
