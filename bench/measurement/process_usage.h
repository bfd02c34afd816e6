// SPDX-License-Identifier: Apache-2.0
// The machine's resources that this process uses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nezha::bench {

struct ProcessUsage {
  int64_t anonymous_kib = 0;  // resident memory that is the process's own: heap and stacks
  int64_t resident_kib = 0;   // resident memory with shared memory, such as libraries
  int64_t peak_kib = 0;       // the peak of that
  int64_t threads = 0;
  int64_t descriptors = 0;  // open files, sockets included
  int64_t sockets = 0;
};

// Reads /proc/self. Values that cannot be read there are 0.
ProcessUsage process_usage();

// Returns the CPU time of all threads since the process began.
double process_cpu_seconds();

}  // namespace nezha::bench
