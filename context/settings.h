// SPDX-License-Identifier: Apache-2.0
// What a context runs by: what the code gives, else the environment, else the default; and how
// ranks come to have the same of what must be the same.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nezha/allreduce.h"
#include "nezha/context.h"

namespace nezha {

// What the code does not give of the rails, the table, the timeout and the polling, which are each
// rank's own.
// The error says what is wrong with them.
absl::Status complete_own_options(ContextOptions& options);

// What a context runs by, once all of it is known, for the log: "plan auto, policy model, ...".
std::string describe(const ContextOptions& options, Algorithm algorithm);

// What must be the same on all ranks: the plan, the shares, the policy and the algorithm.
class AgreedSettings {
 public:
  // What this rank was given. The environment must have been checked.
  explicit AgreedSettings(const ContextOptions& options);

  // Whether this rank was given shares, or the plan that cuts by them.
  bool has_slices() const { return !shares_.value.empty() || plan_.value == "slice"; }

  // Rank 0: the defaults, where nothing was given.
  void complete(size_t rails);
  // All others: what rank 0 has, as it encoded it. InvalidArgument if that makes no sense,
  // FailedPrecondition if this rank was given something else.
  absl::Status adopt(absl::string_view rank0, int rank);
  std::string encode() const;

  // Once they are known. InvalidArgument if they do not fit each other or the number of rails.
  absl::Status apply(ContextOptions& options, Algorithm& algorithm) const;

 private:
  struct Setting {
    std::string variable;
    std::string value;   // empty: not given, or none
    std::string source;  // what has given it: the variable or the option; empty: nothing
  };
  Setting plan_, shares_, policy_, algorithm_;
};

}  // namespace nezha
