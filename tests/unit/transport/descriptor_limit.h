// SPDX-License-Identifier: Apache-2.0
// Lets the process run out of descriptors.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace nezha {

// While one exists, the process has no descriptor with this number or a larger one, unless it had
// that before.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit other = before_;
    other.rlim_cur = limit;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &other), 0);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

// Returns the number of the next descriptor that the process opens.
inline rlim_t next_descriptor() {
  const int next = dup(STDIN_FILENO);  // the lowest that is free
  EXPECT_GE(next, 0);
  close(next);
  return static_cast<rlim_t>(next);
}

}  // namespace nezha
