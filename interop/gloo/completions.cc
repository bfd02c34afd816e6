// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/completions.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "interop/gloo/member.h"

namespace nezha::interop {
namespace {

constexpr size_t kTransfersDescribed = 4;  // transfers, in an error
// The bytes below which the waiter for a transfer is keen, as in nezha's own operations: such a
// message takes one rail and comes in one piece.
constexpr size_t kKeen = 8 << 10;
// Gloo cuts messages into transfers of a few milliseconds. By the slack of whole operations a
// waiter would poll throughout each of them.
constexpr Nanos kSlack = kMillisecond / 2;
constexpr size_t kShort = 16 << 10;  // bytes; up to this, waiters poll even under "cpu-first"

}  // namespace

// Withdrawing a transfer may end others of the list.
Completions::~Completions() {
  while (!open_.empty()) {
    const std::unique_ptr<Transfer> transfer = std::move(open_.back());
    open_.pop_back();
    transfer->withdraw();
  }
}

void Completions::add(std::unique_ptr<Transfer> transfer) {
  if (open_.empty()) moved_ = {};  // earlier transfers say little about the speed of this one
  open_.push_back(std::move(transfer));
}

// The transfer's callbacks may still be on the stack, so it is destroyed later.
void Completions::remove(Transfer& transfer) {
  const auto entry = std::find_if(open_.begin(), open_.end(),
                                  [&](const auto& open) { return open.get() == &transfer; });
  if (entry == open_.end()) return;  // the transfer is over already
  member_.bury(std::move(*entry));
  open_.erase(entry);
}

void Completions::end(Transfer& transfer, int rank) {
  ranks_.push_back(rank);
  remove(transfer);
  wake();
}

void Completions::fail(Transfer& transfer, const absl::Status& why) {
  remove(transfer);
  fail(why);
}

void Completions::fail(const absl::Status& why) {
  if (failure_.ok()) failure_ = why;
  wake();
}

void Completions::abort_wait() {
  is_aborted_ = true;
  wake();
}

void Completions::wake() {
  for (Waiter* waiter : waiters_) {
    if (!waiter->done()) member_.progress().finish(*waiter);
  }
}

absl::StatusOr<std::optional<int>> Completions::wait(Progress::Guard& guard, Nanos deadline) {
  member_.progress().run_deferred();
  while (!is_over()) {
    Waiter waiter;
    waiters_.push_back(&waiter);
    const absl::Cleanup forget = [&] { std::erase(waiters_, &waiter); };
    const auto ask_pace = [&] { return pace(); };
    if (!member_.progress().wait(guard, waiter, deadline, ask_pace) && !is_over()) {
      return absl::DeadlineExceededError(describe());
    }
  }
  if (std::exchange(is_aborted_, false)) return std::nullopt;
  if (ranks_.empty()) return failure_;
  const int rank = ranks_.front();
  ranks_.pop_front();
  return rank;
}

// Estimates when the transfer with the fewest bytes left would be over if it had the whole rate. No
// transfer ends sooner, so a thread that waits sleeps while that is far off.
Pace Completions::pace() const {
  if (open_.empty()) return {};
  const auto nearest =
      std::min_element(open_.begin(), open_.end(),
                       [](const auto& a, const auto& b) { return a->left() < b->left(); });
  const size_t left = (*nearest)->left();
  const Nanos time = now();
  if (moved_.has_slack(left, time, kSlack))
    return {.polls = false, .rest = moved_.rest(left, time)};
  return {.polls = member_.puts_latency_first() || left <= kShort, .is_keen = left < kKeen};
}

std::string Completions::describe() const {
  std::vector<std::string> parts;
  for (const auto& transfer : open_) {
    if (parts.size() < kTransfersDescribed) parts.push_back(transfer->describe());
  }
  if (open_.size() > parts.size()) {
    parts.push_back(absl::StrCat("and ", open_.size() - parts.size(), " more"));
  }
  return parts.empty() ? absl::StrCat("no ", what_, " was begun") : absl::StrJoin(parts, "; ");
}

}  // namespace nezha::interop
