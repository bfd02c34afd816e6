// SPDX-License-Identifier: Apache-2.0
// The command line of the program that uses Gloo over one device or another.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace nezha::gloo_cases {

struct Options {
  int rank = 0;     // of this process, if it has one rank
  int size = 0;     // of the whole job
  int threads = 0;  // 0: one rank, which meets the others in the store
  std::string store;
  std::string interface = "lo";  // of Gloo's own tcp device
  std::string device_library;    // empty: Gloo's own tcp device
  std::string rails;             // of the library's device
  std::string cases;             // a regular expression that must match a part of the name
  bool list = false;
  size_t max_bytes = 1 << 20;  // of a rank's buffer
  std::chrono::milliseconds timeout{20000};
  uint32_t seed = 1;
  std::string load;  // empty: run the cases
  std::vector<std::string> operations;
  size_t elements = 1 << 20;  // of an operation of the load
};

// If the line is bad, prints the usage and ends the process.
Options parse(int argc, char** argv);

}  // namespace nezha::gloo_cases
