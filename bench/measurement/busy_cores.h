// SPDX-License-Identifier: Apache-2.0
// Measures how busy the machine is while something is measured.
#pragma once

#include <chrono>

namespace nezha::bench {

// Counts from its construction on, over the CPUs that this process may use.
class BusyCores {
 public:
  BusyCores();
  // Returns the mean number of these CPUs that were busy, with any process or the kernel, or less
  // than 0 if the kernel does not tell. The kernel counts in hundredths of a second.
  double mean() const;

 private:
  const std::chrono::steady_clock::time_point start_;
  const double before_;  // seconds of work since the machine started
};

}  // namespace nezha::bench
