// SPDX-License-Identifier: Apache-2.0
// Reads the rank and the size of this process from the launcher's environment variables
// (nezha/launch.h).
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nezha/launch.h"

namespace nezha {

// Does what launchEnvironment() does, without exceptions. An error names the variables that are
// wrong.
absl::StatusOr<LaunchEnvironment> read_launch_environment();

// Replaces a rank or a size of -1 (ContextOptions::kFromEnvironment) by the environment's, and
// checks that 0 <= rank < size. An error says where each number came from. If both are given, the
// environment is not read.
absl::Status complete_rank_and_size(int& rank, int& size);

// Returns how many of the job's ranks the launcher has started on this host, or 0 if the launcher
// does not tell or the job has fewer than `size` ranks. A context of more ranks has some that are
// not the launcher's.
int launched_here(int size);

}  // namespace nezha
