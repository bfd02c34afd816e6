// SPDX-License-Identifier: Apache-2.0
// The ranks of a Gloo context, which Gloo itself has made acquainted with each other.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "context/directory.h"

namespace nezha::interop {

class Acquaintances final : public Directory {
 public:
  // Returns what this rank would publish if there were a store; nothing before it has joined.
  std::optional<Record> own() const;
  // That rank is known from now on. May come again with more of its rails.
  void meet(int rank, const Record& record);

  absl::Status publish(int rank, const Record& record) override;
  absl::Status confirm(int /*rank*/, const Record& /*record*/) override { return absl::OkStatus(); }
  void refuse(int /*rank*/, absl::string_view /*why*/) override {}
  // Does not wait: the ranks know each other once the Gloo context is connected.
  absl::StatusOr<Record> read(int rank, Nanos deadline,
                              const std::function<absl::Status()>& given_up) override;

 private:
  mutable std::mutex mutex_;
  std::optional<Record> own_;
  std::map<int, Record> others_;
};

}  // namespace nezha::interop
