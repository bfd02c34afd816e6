// SPDX-License-Identifier: Apache-2.0
#include "context/departure.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "common/fork.h"
#include "common/shortage.h"

namespace nezha {
namespace {

// How long a process that exits waits for its goodbyes: longer than an endpoint lingers.
constexpr std::chrono::milliseconds kExitTime{1500};

// The endpoints of the process, and the threads that say goodbye or end an endpoint.
class Departures {
 public:
  void add(const std::shared_ptr<Endpoint>& endpoint) {
    const std::lock_guard lock(mutex_);
    std::erase_if(endpoints_, [](const auto& each) { return each.expired(); });
    endpoints_.push_back(endpoint);
  }

  // Runs `work` in a thread. Returns whether a thread could be started.
  bool run(const std::function<void()>& work) {
    {
      const std::lock_guard lock(mutex_);
      ++running_;
    }
    absl::Cleanup over = [this] { on_over(); };
    auto thread = start_thread([this, work] {
      work();
      on_over();
    });
    if (!thread.ok()) return false;
    std::move(over).Cancel();
    thread->detach();
    return true;
  }

  void on_exit() {
    std::unique_lock lock(mutex_);
    const std::vector<std::weak_ptr<Endpoint>> endpoints = std::exchange(endpoints_, {});
    lock.unlock();
    for (const auto& each : endpoints) {
      auto endpoint = each.lock();
      // If there is no thread, the exit looks like a death to the peers.
      if (endpoint != nullptr) run([endpoint] { endpoint->say_goodbye(); });
    }
    lock.lock();
    over_.wait_for(lock, kExitTime, [this] { return running_ == 0; });
  }

 private:
  void on_over() {
    const std::lock_guard lock(mutex_);
    --running_;
    over_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable over_;
  std::vector<std::weak_ptr<Endpoint>> endpoints_;
  int running_ = 0;
};

Departures& departures() {
  static PerProcess<Departures> per_process;
  static std::once_flag registers;  // for children of fork(), too
  std::call_once(registers, [] { std::atexit([] { per_process.get().on_exit(); }); });
  return per_process.get();
}

}  // namespace

// The goodbyes run in threads, since exit() may be called where waiting is not allowed, for example
// in a reduction function.
void say_goodbye_at_exit(const std::shared_ptr<Endpoint>& endpoint) { departures().add(endpoint); }

void end_in_background(std::shared_ptr<Endpoint> endpoint) noexcept {
  try {
    const auto held = std::make_shared<std::shared_ptr<Endpoint>>(std::move(endpoint));
    departures().run([held] { held->reset(); });
  } catch (const std::bad_alloc&) {  // the endpoint is released here instead
  }
}

}  // namespace nezha
