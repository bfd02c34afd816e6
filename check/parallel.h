// SPDX-License-Identifier: Apache-2.0
// Tasks that mostly wait, each on a thread of its own.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "common/shortage.h"

namespace nezha::check {

// Runs all tasks and waits for them. A task runs on the calling thread if there is no thread to be
// had. The tasks throw nothing.
inline void run_all(const std::vector<std::function<void()>>& tasks) {
  std::vector<std::thread> threads;
  for (const auto& task : tasks) {
    auto thread = start_thread(task);
    if (thread.ok()) {
      threads.push_back(*std::move(thread));
    } else {
      task();
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace nezha::check
