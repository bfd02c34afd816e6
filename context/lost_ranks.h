// SPDX-License-Identifier: Apache-2.0
// The ranks that an error is about. They are a payload of its status, and reach the user by
// IoError::ranks().
#pragma once

#include <vector>

#include "absl/status/status.h"

namespace nezha {

// Returns the ranks in order, each once. There are none if the error is about no rank.
std::vector<int> lost_ranks(const absl::Status& status);
// Returns the same error, which is about these ranks as well. `status` is an error.
absl::Status with_lost_ranks(absl::Status status, const std::vector<int>& ranks);

}  // namespace nezha
