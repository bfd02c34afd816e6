// SPDX-License-Identifier: Apache-2.0
#include "control/plan_agreement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace nezha {

std::optional<uint32_t> PlanFollower::start(const OperationId& operation) {
  if (waiting_) {
    held_.insert(operation);
    return std::nullopt;
  }
  held_.erase(operation);
  const auto kept = keep_.find(operation);
  if (kept == keep_.end()) {
    in_flight_.insert(operation);
    return current_;
  }
  const uint32_t plan = kept->second;
  keep_.erase(kept);
  return plan;
}

absl::StatusOr<std::vector<OperationId>> PlanFollower::prepare(uint32_t plan) {
  if (waiting_ || plan != current_ + 1) {
    return absl::InvalidArgumentError(absl::StrCat("it asks to prepare plan ", plan,
                                                   ", but this rank runs plan ", current_,
                                                   waiting_ ? " and is in a step already" : ""));
  }
  waiting_ = true;
  return std::vector<OperationId>(in_flight_.begin(), in_flight_.end());
}

absl::Status PlanFollower::commit(uint32_t plan, const std::vector<OperationId>& keep,
                                  absl::FunctionRef<bool(const OperationId&)> has_entered) {
  if (!waiting_ || plan != current_ + 1) {
    return absl::InvalidArgumentError(absl::StrCat("it asks to commit plan ", plan,
                                                   ", but this rank runs plan ", current_,
                                                   waiting_ ? "" : " and is in no step"));
  }
  if (keep_.size() + keep.size() > kMaxKept) {
    return absl::ResourceExhaustedError(absl::StrCat("it asks to keep ", keep.size(),
                                                     " operations in addition to ", keep_.size(),
                                                     "; the limit is ", kMaxKept));
  }
  for (const OperationId& operation : keep) {
    const bool started = has_entered(operation) && !held_.contains(operation);
    if (!started) keep_.emplace(operation, current_);
  }
  in_flight_.clear();
  current_ = plan;
  waiting_ = false;
  return absl::OkStatus();
}

uint32_t PlanFollower::oldest() const {
  uint32_t oldest = current_;
  for (const auto& [operation, plan] : keep_) oldest = std::min(oldest, plan);
  return oldest;
}

uint32_t PlanCoordinator::begin() {
  missing_ = reported_.size();
  std::fill(reported_.begin(), reported_.end(), false);
  union_.clear();
  return ++plan_;
}

absl::StatusOr<std::optional<std::vector<OperationId>>> PlanCoordinator::report(
    int rank, uint32_t plan, const std::vector<OperationId>& operations) {
  const auto index = static_cast<size_t>(rank);
  if (rank < 0 || index >= reported_.size() || missing_ == 0 || plan != plan_ || reported_[index]) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " reports for plan ", plan, ", which it was not asked for"));
  }
  reported_[index] = true;
  union_.insert(operations.begin(), operations.end());
  if (--missing_ > 0) return std::nullopt;
  return std::vector<OperationId>(union_.begin(), union_.end());
}

std::vector<int> PlanCoordinator::missing() const {
  std::vector<int> ranks;
  for (size_t rank = 0; missing_ > 0 && rank < reported_.size(); ++rank) {
    if (!reported_[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace nezha
