// SPDX-License-Identifier: Apache-2.0
// The directory of a Gloo context: its ranks know each other by Gloo's own rendezvous.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "context/directory.h"

namespace nezha::interop {

class Acquaintances final : public Directory {
 public:
  // Returns the record that this rank has published, or nothing before it has joined.
  std::optional<Record> own() const;
  // Adds the record of a rank. May be called again with more of the rank's rails.
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
