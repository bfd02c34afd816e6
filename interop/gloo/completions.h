// SPDX-License-Identifier: Apache-2.0
// What a buffer waits for: its sends, or its receives.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "collectives/hosts/arrivals.h"
#include "common/clock.h"
#include "interop/gloo/transfer.h"
#include "transport/progress.h"

namespace nezha::interop {

class Member;

// It owns the transfers that are not over. All calls are made under Progress's lock.
class Completions final {
 public:
  // `what` they are, for errors: "send" or "recv".
  Completions(Member& member, absl::string_view what) : member_(member), what_(what) {}
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  absl::string_view what() const { return what_; }

  void add(std::unique_ptr<Transfer> transfer);
  // So much of a transfer has been moved.
  void note_moved(size_t bytes) { moved_.add(bytes, now()); }
  // The transfer is over: it was with that rank.
  void end(Transfer& transfer, int rank);
  // It is over for that reason, and was withdrawn. The first reason counts for all that follow.
  void fail(Transfer& transfer, const absl::Status& why);
  // No more can be begun.
  void fail(const absl::Status& why);

  // The wait that is under way, or the next one, returns without a rank. (So it is in Gloo.)
  void abort_wait();

  // Waits for the next transfer that is complete, and returns its rank. Returns nothing after
  // abort_wait. DeadlineExceeded if none is complete by the deadline (then !has_failed()), and the
  // reason if one failed.
  absl::StatusOr<std::optional<int>> wait(Progress::Guard& guard, Nanos deadline);

  bool has_failed() const { return !failure_.ok(); }

  // For errors: whom the transfers wait for, and why they do.
  std::string describe() const;

 private:
  void remove(Transfer& transfer);
  bool is_over() const { return !ranks_.empty() || is_aborted_ || !failure_.ok(); }
  void wake();
  Pace pace() const;

  Member& member_;
  const absl::string_view what_;
  std::vector<std::unique_ptr<Transfer>> open_;
  std::deque<int> ranks_;  // of those that are complete
  absl::Status failure_;
  bool is_aborted_ = false;
  std::vector<Waiter*> waiters_;
  Arrivals moved_;  // since there was nothing to wait for
};

}  // namespace nezha::interop
