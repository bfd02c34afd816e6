// SPDX-License-Identifier: Apache-2.0
// The rank and size of this process by the launcher's environment variables (nezha/launch.h).
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nezha/launch.h"

namespace nezha {

// launchEnvironment() without exceptions. An error names the variables that are wrong.
absl::StatusOr<LaunchEnvironment> read_launch_environment();

// Replaces a rank or a size of -1 (ContextOptions::kFromEnvironment) by the environment's, and
// checks that 0 <= rank < size. An error says where each number came from. With both given the
// environment is not looked at.
absl::Status complete_rank_and_size(int& rank, int& size);

// How many of the job's ranks the launcher has started on this host, if it tells and the job has at
// least `size` ranks; else 0. A context of more ranks has some that are not the launcher's.
int launched_here(int size);

}  // namespace nezha
