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

// By the kernel's numbers.
using Cpus = std::set<int>;

// As the kernel and taskset(1) write them, 0-3,8. At least one.
absl::StatusOr<Cpus> parse_cpus(absl::string_view text);
std::string to_string(const Cpus& cpus);

// Those that the calling thread may run on; empty if the kernel does not tell.
Cpus allowed_cpus();

// Has the thread run on these alone. kInvalidArgument, which names those there are, if one of them
// does not exist or is kept from this process (cpuset(7)).
absl::Status bind_thread(pthread_t thread, const Cpus& cpus);

}  // namespace nezha
