// SPDX-License-Identifier: Apache-2.0
// CPU cores: sets of them, and the threads that run on them.
#pragma once

#include <pthread.h>

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nezha {

// The kernel's numbers of the cores.
using Cpus = std::set<int>;

// The text has the format of the kernel and taskset(1): 0-3,8. It names at least one core.
absl::StatusOr<Cpus> parse_cpus(absl::string_view text);
std::string to_string(const Cpus& cpus);

// Returns the cores that the calling thread may run on; none if the kernel does not tell.
Cpus allowed_cpus();

// Restricts the thread to these cores. Returns kInvalidArgument, which names the available cores,
// if one of them does not exist or this process may not use it (cpuset(7)).
absl::Status bind_thread(pthread_t thread, const Cpus& cpus);

}  // namespace nezha
