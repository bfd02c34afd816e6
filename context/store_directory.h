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

// Returns how long a rank pauses before it asks the store again, if it has waited for `waited` and
// has `left` until its deadline.
Nanos pause_after(Nanos waited, Nanos left);

// A directory in a store. Only one thread at a time calls the store, because Gloo's stores are not
// thread-safe.
class StoreDirectory final : public Directory {
 public:
  using Store = ::gloo::rendezvous::Store;

  explicit StoreDirectory(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  absl::Status publish(int rank, const Record& record) override;
  // This is needed because Gloo's FileStore lets two processes that publish the same rank at the
  // same time replace each other's record.
  absl::Status confirm(int rank, const Record& record) override;
  // See leave_refusal.
  void refuse(int rank, absl::string_view why) override;
  absl::StatusOr<Record> read(int rank, Nanos deadline,
                              const std::function<absl::Status()>& given_up) override;

 private:
  // Reads the record that is published as `rank`. Callers hold the lock. Returns an error if the
  // store fails.
  absl::StatusOr<Record> fetch(int rank);

  std::shared_ptr<Store> store_;
  std::mutex mutex_;
};

}  // namespace nezha
