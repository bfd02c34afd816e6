// SPDX-License-Identifier: Apache-2.0
#include "context/shared_endpoint.h"

#include <chrono>
#include <cstdlib>
#include <future>
#include <mutex>
#include <utility>

#include "common/fork.h"
#include "common/shortage.h"

namespace nezha {
namespace {

// How long a process that ends may take to say so: more than an endpoint lingers.
constexpr std::chrono::milliseconds kExitTime{1500};

struct Shared {
  std::mutex mutex;
  std::weak_ptr<Endpoint> endpoint;
};

Shared& shared() {
  static PerProcess<Shared> per_process;
  return per_process.get();
}

// A process that ends in peace has left the contexts that it did not destroy. By a thread, since
// exit() may have been called where nothing may be waited for: in a function that reduces, say.
void say_goodbye_at_exit() {
  std::shared_ptr<Endpoint> endpoint;
  {
    const std::lock_guard lock(shared().mutex);
    endpoint = shared().endpoint.lock();
  }
  if (endpoint == nullptr) return;
  std::promise<void> said;
  std::future<void> end = said.get_future();
  auto thread = start_thread([endpoint = std::move(endpoint), said = std::move(said)]() mutable {
    endpoint->say_goodbye();
    said.set_value();
  });
  if (!thread.ok()) return;  // it looks like a death to the others
  thread->detach();
  end.wait_for(kExitTime);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Endpoint>> shared_endpoint() {
  static std::once_flag registers;  // for children of fork(), too
  std::call_once(registers, [] { std::atexit(say_goodbye_at_exit); });
  Shared& shared = nezha::shared();
  const std::lock_guard lock(shared.mutex);
  if (auto endpoint = shared.endpoint.lock()) return endpoint;
  auto made = Endpoint::create();
  if (made.ok()) shared.endpoint = *made;
  return made;
}

}  // namespace nezha
