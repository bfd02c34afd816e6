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

constexpr size_t kMostDescribed = 4;  // transfers, in an error

}  // namespace

Completions::~Completions() {
  for (const auto& transfer : open_) transfer->withdraw();
}

void Completions::add(std::unique_ptr<Transfer> transfer) { open_.push_back(std::move(transfer)); }

// Its callbacks may still be on the stack.
void Completions::remove(Transfer& transfer) {
  const auto entry = std::find_if(open_.begin(), open_.end(),
                                  [&](const auto& open) { return open.get() == &transfer; });
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
    if (!member_.progress().wait(guard, waiter, deadline) && !is_over()) {
      return absl::DeadlineExceededError(describe());
    }
  }
  if (std::exchange(is_aborted_, false)) return std::nullopt;
  if (ranks_.empty()) return failure_;
  const int rank = ranks_.front();
  ranks_.pop_front();
  return rank;
}

std::string Completions::describe() const {
  std::vector<std::string> parts;
  for (const auto& transfer : open_) {
    if (parts.size() < kMostDescribed) parts.push_back(transfer->describe());
  }
  if (open_.size() > parts.size()) {
    parts.push_back(absl::StrCat("and ", open_.size() - parts.size(), " more"));
  }
  return parts.empty() ? absl::StrCat("no ", what_, " was begun") : absl::StrJoin(parts, "; ");
}

}  // namespace nezha::interop
