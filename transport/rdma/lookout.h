// SPDX-License-Identifier: Apache-2.0
// Looks at the machine's RDMA devices on a thread of its own. Opening a device, and reading the
// addresses of network interfaces, takes milliseconds, and longer while somebody else holds the
// kernel's locks for them. Other rails go on meanwhile.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "common/net/socket.h"
#include "transport/progress.h"
#include "transport/rdma/hca.h"
#include "transport/rdma/verbs.h"

namespace nezha::rdma {

// Returns the choice that the wish leads to now. Blocks.
absl::StatusOr<Choice> choose_now(const Wish& wish, const Verbs& verbs);

// All calls are made under Progress's lock. The thread lives as long as a look takes.
class Lookout final : EventHandler {
 public:
  using Found = std::function<void(const absl::StatusOr<Choice>& choice)>;

  // `found` is called after each look, and may not destroy the lookout.
  static absl::StatusOr<std::unique_ptr<Lookout>> create(Progress& progress, Wish wish,
                                                         const Verbs& verbs, Found found);
  ~Lookout() override;  // waits for a look that is under way
  Lookout(const Lookout&) = delete;
  Lookout& operator=(const Lookout&) = delete;

  // Looks. If a look is under way, another one follows it, since something may have changed since
  // it began.
  void ask();

 private:
  Lookout(Progress& progress, Wish wish, const Verbs& verbs, Found found)
      : progress_(progress), wish_(std::move(wish)), verbs_(verbs), found_(std::move(found)) {}
  void on_events(uint32_t) override;

  Progress& progress_;
  const Wish wish_;
  const Verbs& verbs_;
  const Found found_;
  net::Socket over_;  // an eventfd: tells that a look is over
  std::thread thread_;
  bool is_under_way_ = false;
  bool is_wanted_ = false;         // another look is to follow
  absl::StatusOr<Choice> choice_;  // belongs to the thread while a look is under way
};

}  // namespace nezha::rdma
