// SPDX-License-Identifier: Apache-2.0
// The settings of a context. Each is taken from the code, else the environment, else the default.
// Settings that must be the same on all ranks are agreed on with rank 0.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nezha/allreduce.h"
#include "nezha/context.h"

namespace nezha {

// Completes the settings that each rank has for itself: the rails, the ports, the table, the
// timeout and the polling. Returns an error that says what is wrong with them.
absl::Status complete_own_options(ContextOptions& options);

// Describes complete settings for the log: "plan auto, policy model, ...".
std::string describe(const ContextOptions& options, Algorithm algorithm);

// The settings that must be the same on all ranks: the plan, the shares, the policy and the
// algorithm.
class AgreedSettings {
 public:
  // Takes what this rank was given. The environment must have been checked.
  explicit AgreedSettings(const ContextOptions& options);

  // Returns whether this rank was given shares, or the plan that uses them.
  bool has_slices() const { return !shares_.value.empty() || plan_.value == "slice"; }

  // Sets the defaults where nothing was given. Is called at rank 0.
  void complete(size_t rails);
  // Takes over rank 0's encoded settings. Is called at the other ranks. Returns InvalidArgument if
  // they are malformed, FailedPrecondition if this rank was given something else.
  absl::Status adopt(absl::string_view rank0, int rank);
  std::string encode() const;

  // Applies the settings once they are known. Returns InvalidArgument if they do not fit each other
  // or the number of rails.
  absl::Status apply(ContextOptions& options, Algorithm& algorithm) const;

 private:
  struct Setting {
    std::string variable;
    std::string value;   // empty: not given, or none
    std::string source;  // the variable or the option that gave the value; empty: none
  };
  Setting plan_, shares_, policy_, algorithm_;
};

}  // namespace nezha
