// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a context, and of contexts that were split from it, say who they are.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "context/record.h"

namespace nezha {

// In this interface, ranks are those of the context that published the records. Thread-safe.
// Callers do not hold Progress's lock, since calls may block.
class Directory {
 public:
  virtual ~Directory() = default;

  // Publishes the record of `rank`. An error names the process that has published itself as `rank`
  // before, if there is one.
  virtual absl::Status publish(int rank, const Record& record) = 0;
  // Returns an error if another record has replaced that one since.
  virtual absl::Status confirm(int rank, const Record& record) = 0;
  // Publishes that `rank` cannot join, and why. Errors are ignored.
  virtual void refuse(int rank, absl::string_view why) = 0;
  // Waits for the record of `rank` until the deadline, until a rank has refused, or until
  // `given_up`, which is called now and then, returns an error.
  virtual absl::StatusOr<Record> read(int rank, Nanos deadline,
                                      const std::function<absl::Status()>& given_up) = 0;
};

}  // namespace nezha
