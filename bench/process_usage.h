// What this process has of the machine.
#pragma once

#include <cstddef>

namespace nezha::bench {

struct ProcessUsage {
  double cpu_seconds = 0;
  size_t anonymous_kib = 0;  // resident memory that is the process's own: heap and stacks
  size_t resident_kib = 0;   // with what it shares, as libraries
  size_t peak_kib = 0;       // of that
  size_t threads = 0;
  size_t descriptors = 0;  // open files, and of these
  size_t sockets = 0;
};

// As /proc/self has it. What cannot be read there is 0.
ProcessUsage process_usage();

}  // namespace nezha::bench
