// SPDX-License-Identifier: Apache-2.0
// What this process has of the machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nezha::bench {

struct ProcessUsage {
  int64_t anonymous_kib = 0;  // resident memory that is the process's own: heap and stacks
  int64_t resident_kib = 0;   // with what it shares, as libraries
  int64_t peak_kib = 0;       // of that
  int64_t threads = 0;
  int64_t descriptors = 0;  // open files, and of these
  int64_t sockets = 0;
};

// As /proc/self has it. What cannot be read there is 0.
ProcessUsage process_usage();

// Of all its threads since it began.
double process_cpu_seconds();

}  // namespace nezha::bench
