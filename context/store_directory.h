// SPDX-License-Identifier: Apache-2.0
// The ranks of a context publish who they are in a rendezvous store.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "context/directory.h"
#include "context/record.h"

namespace gloo::rendezvous {
class Store;
}

namespace nezha {

// For how long a rank that has waited so long for a record leaves the store alone, with so much
// left until its deadline.
Nanos pause_after(Nanos waited, Nanos left);

// One store, which is called by one thread at a time: Gloo's are not thread-safe.
class StoreDirectory final : public Directory {
 public:
  using Store = ::gloo::rendezvous::Store;

  explicit StoreDirectory(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  absl::Status publish(int rank, const Record& record) override;
  // Gloo's FileStore lets two that publish themselves at the same time replace each other.
  absl::Status confirm(int rank, const Record& record) override;
  // See leave_refusal.
  void refuse(int rank, absl::string_view why) override;
  absl::StatusOr<Record> read(int rank, Nanos deadline,
                              const std::function<absl::Status()>& given_up) override;

 private:
  // Under the lock: who is published as `rank`. An error if the store does not give it.
  absl::StatusOr<Record> fetch(int rank);

  std::shared_ptr<Store> store_;
  std::mutex mutex_;
};

}  // namespace nezha
