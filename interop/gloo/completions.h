// SPDX-License-Identifier: Apache-2.0
// The transfers that a buffer waits for: its sends, or its receives.
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

// Owns the transfers that are not over. All methods are called under Progress's lock.
class Completions final {
 public:
  // `what` names the transfers in errors: "send" or "recv".
  Completions(Member& member, absl::string_view what) : member_(member), what_(what) {}
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  absl::string_view what() const { return what_; }

  void add(std::unique_ptr<Transfer> transfer);
  // That many bytes of a transfer were sent or received.
  void note_moved(size_t bytes) { moved_.add(bytes, now()); }
  // The transfer with that rank is over.
  void end(Transfer& transfer, int rank);
  // The transfer has failed, and was withdrawn. The first failure is the error of all later waits.
  void fail(Transfer& transfer, const absl::Status& why);
  // No transfers can be begun any more.
  void fail(const absl::Status& why);

  // As in Gloo, the wait that is under way, or the next one, returns without a rank.
  void abort_wait();

  // Waits for the next transfer that is complete, and returns its rank. Returns nothing after
  // abort_wait, the error if a transfer failed, and DeadlineExceeded if none is complete by the
  // deadline (then !has_failed()).
  absl::StatusOr<std::optional<int>> wait(Progress::Guard& guard, Nanos deadline);

  bool has_failed() const { return !failure_.ok(); }

  // Returns text for errors: which ranks the transfers wait for, and why.
  std::string describe() const;

 private:
  void remove(Transfer& transfer);
  bool is_over() const { return !ranks_.empty() || is_aborted_ || !failure_.ok(); }
  void wake();
  Pace pace() const;

  Member& member_;
  const absl::string_view what_;
  std::vector<std::unique_ptr<Transfer>> open_;
  std::deque<int> ranks_;  // the ranks of complete transfers that no wait has returned yet
  absl::Status failure_;
  bool is_aborted_ = false;
  std::vector<Waiter*> waiters_;
  Arrivals moved_;  // the arrivals since open_ was last empty
};

}  // namespace nezha::interop
