// SPDX-License-Identifier: Apache-2.0
// Checks the memory behind the pointers that a caller passes, for NEZHA_CHECK_POINTERS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace nezha {

// A range of the caller's memory.
struct MemoryRange {
  std::string name;  // the name for errors: "input 0"
  uintptr_t begin;
  size_t bytes;
  bool is_written;  // false: it is only read
};

// Returns an error for the first range that this process cannot use completely. The error says what
// is there: nothing, pages that may not be read or written, or a device's memory. Thread-safe.
// Reads /proc/self/maps, which takes milliseconds if much is mapped. Does not notice if a file ends
// before its mapping does.
absl::Status check_memory(const std::vector<MemoryRange>& ranges);

// ---- The parts that can be tested without a device

// Consecutive pages of one kind.
struct MemoryArea {
  uintptr_t begin;
  uintptr_t end;
  bool readable;
  bool writable;
  std::string file;  // the mapped file; empty: none
};

// Parses the contents of /proc/PID/maps (proc_pid_maps(5)). Returns the areas by address.
std::vector<MemoryArea> parse_memory_map(absl::string_view text);

// What the device's driver says about the memory, if the program has loaded one.
enum class DriverSays { kNothing, kDeviceMemory, kUsableByHost };

absl::Status check_memory(const MemoryRange& range, const std::vector<MemoryArea>& areas,
                          DriverSays driver);

}  // namespace nezha
