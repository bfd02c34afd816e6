// SPDX-License-Identifier: Apache-2.0
// How many CPU cores this process may use, and whom it shares them with.
#pragma once

#include <optional>
#include <string>

namespace nezha {

// The limit on CPU time that a cgroup, of version 1 or 2, sets for its processes.
struct CpuQuota {
  double cores = 0;    // the number of cores that may be busy all the time
  std::string cgroup;  // its folder
};

// The cores that a process may use.
struct Cores {
  double count = 0;  // a cgroup's limit may be a fraction
  // Names these cores. It is equal for the processes of a machine that share them, even in
  // different containers. It has no spaces.
  std::string pool;
};

// A process's part in its cores.
struct CoreShare {
  double cores = 0;
  int ranks = 1;         // how many share the cores, including this one
  bool is_known = true;  // if false, there may be fewer ranks
};

// In these functions, `proc` is the folder with the kernel's files on processes.

// Returns the tightest limit that the cgroup of this process or one above it sets; none if none
// does.
std::optional<CpuQuota> cpu_quota(const std::string& proc = "/proc");

// Returns the cores that the calling thread may run on, at most as many as the quota allows. If the
// kernel reports none, there is one.
Cores usable_cores(const std::string& proc = "/proc");

// Returns how many threads a process may have to handle what its rails receive: one for each core
// of its own. If it has at most one core of its own there are none, because the thread that waits
// for an operation needs that core.
int rail_threads(const CoreShare& share);

}  // namespace nezha
