// SPDX-License-Identifier: Apache-2.0
// How many CPU cores this process may use, and whom it shares them with.
#pragma once

#include <optional>
#include <string>

namespace nezha {

// The limit on CPU time that a cgroup, of version 1 or 2, sets for its processes.
struct CpuQuota {
  double cores = 0;    // so many that are busy all the time
  std::string cgroup;  // its folder
};

// The cores that a process may use.
struct Cores {
  double count = 0;  // a cgroup's limit may be a fraction
  // Names these cores: equal for the processes of a machine that share them, also where the
  // processes are in different containers. Has no spaces.
  std::string pool;
};

// A process's part in its cores.
struct CoreShare {
  double cores = 0;
  int ranks = 1;         // that share them, this one among them
  bool is_known = true;  // else there may be fewer ranks
};

// `proc`: where the kernel's files on processes are.

// The tightest limit that the cgroup of this process sets, or one above that cgroup. None if none
// does.
std::optional<CpuQuota> cpu_quota(const std::string& proc = "/proc");

// Those of the calling thread: the cores that it may run on, and no more than the quota allows.
// Where the kernel does not tell of any, there is one.
Cores usable_cores(const std::string& proc = "/proc");

// How many threads a process may have that handle what its rails bring: one for each core that is
// its own. Where that is one core at most there are none, since the thread that waits for an
// operation needs that core.
int rail_threads(const CoreShare& share);

}  // namespace nezha
