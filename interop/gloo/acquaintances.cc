// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/acquaintances.h"

#include "absl/strings/str_cat.h"

namespace nezha::interop {

std::optional<Record> Acquaintances::own() const {
  const std::lock_guard lock(mutex_);
  return own_;
}

void Acquaintances::meet(int rank, const Record& record) {
  const std::lock_guard lock(mutex_);
  others_[rank] = record;
}

absl::Status Acquaintances::publish(int /*rank*/, const Record& record) {
  const std::lock_guard lock(mutex_);
  own_ = record;
  return absl::OkStatus();
}

absl::StatusOr<Record> Acquaintances::read(int rank, Nanos /*deadline*/,
                                           const std::function<absl::Status()>& /*given_up*/) {
  const std::lock_guard lock(mutex_);
  const auto known = others_.find(rank);
  if (known != others_.end()) return known->second;
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", rank, " is not connected; connect the Gloo context first"));
}

}  // namespace nezha::interop
