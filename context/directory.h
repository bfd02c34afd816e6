// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a context, and of those that were split from it, have published who they are.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "context/record.h"

namespace gloo::rendezvous {
class Store;
}

namespace nezha {

// For how long a rank that has waited so long for a record leaves the store alone, with so much
// left until its deadline.
Nanos pause_after(Nanos waited, Nanos left);

// The records in one rendezvous store. Ranks are those of the context that published them.
// Thread-safe, which Gloo's stores are not. Not to be called under Progress's lock: stores block.
class Directory {
 public:
  using Store = ::gloo::rendezvous::Store;

  explicit Directory(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  // An error names the process that has published itself as `rank` before, if there is one.
  absl::Status publish(int rank, const Record& record);
  // An error if another process has replaced that record since, as Gloo's FileStore lets two that
  // publish themselves at the same time do.
  absl::Status confirm(int rank, const Record& record);
  // Leaves word that `rank` cannot join; see leave_refusal.
  void refuse(int rank, absl::string_view why);
  // Waits for the record of `rank` until the deadline, until a rank has refused, or until
  // `given_up` is an error, which is asked now and then.
  absl::StatusOr<Record> read(int rank, Nanos deadline,
                              const std::function<absl::Status()>& given_up);

 private:
  // Under the lock: who is published as `rank`. An error if the store does not give it.
  absl::StatusOr<Record> fetch(int rank);

  std::shared_ptr<Store> store_;
  std::mutex mutex_;
};

}  // namespace nezha
