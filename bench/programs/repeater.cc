// SPDX-License-Identifier: Apache-2.0
#include "bench/programs/repeater.h"

#include <utility>

namespace nezha::bench {

Repeater::Repeater(std::function<void()> task)
    : task_(std::move(task)), thread_([this] { loop(); }) {}

Repeater::~Repeater() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_ != State::kRunning; });
  }
  set(State::kStopping);
  thread_.join();
}

void Repeater::set(State state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  changed_.notify_all();
}

void Repeater::start() { set(State::kRunning); }

void Repeater::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ != State::kRunning; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Repeater::loop() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return state_ != State::kIdle; });
      if (state_ == State::kStopping) return;
    }
    std::exception_ptr error;
    try {
      task_();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    error_ = error;
    state_ = State::kIdle;
    changed_.notify_all();
  }
}

}  // namespace nezha::bench
