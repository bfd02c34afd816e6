// SPDX-License-Identifier: Apache-2.0
#include "context/shared_endpoint.h"

#include <mutex>

#include "common/fork.h"
#include "context/departure.h"

namespace nezha {
namespace {

struct Shared {
  std::mutex mutex;
  std::weak_ptr<Endpoint> endpoint;
};

Shared& shared() {
  static PerProcess<Shared> per_process;
  return per_process.get();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Endpoint>> shared_endpoint() {
  Shared& shared = nezha::shared();
  const std::lock_guard lock(shared.mutex);
  if (auto endpoint = shared.endpoint.lock()) return endpoint;
  auto made = Endpoint::create();
  if (!made.ok()) return made;
  shared.endpoint = *made;
  say_goodbye_at_exit(*made);
  return made;
}

}  // namespace nezha
