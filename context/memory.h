// SPDX-License-Identifier: Apache-2.0
// What is behind the pointers that a caller hands over, for NEZHA_CHECK_POINTERS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace nezha {

// Memory of the caller's.
struct MemoryRange {
  std::string name;  // for errors: "input 0"
  uintptr_t begin;
  size_t bytes;
  bool is_written;  // it is read in any case
};

// An error that names the first range of which this process cannot use each byte, and says what is
// there instead: nothing, pages that may not be read or written, or a device's memory. Thread-safe.
// Takes the time to read /proc/self/maps, milliseconds where much is mapped. That a file ends
// before its mapping does is not seen.
absl::Status check_memory(const std::vector<MemoryRange>& ranges);

// The parts of it that can be tested without a device.

// Consecutive pages of one kind.
struct MemoryArea {
  uintptr_t begin;
  uintptr_t end;
  bool readable;
  bool writable;
  std::string file;  // that is mapped; empty: none
};

// The areas by address, from what /proc/PID/maps says (proc_pid_maps(5)).
std::vector<MemoryArea> parse_memory_map(absl::string_view text);

// What the driver of the device says, if the program has loaded one.
enum class DriverSays { kNothing, kDeviceMemory, kUsableByHost };

absl::Status check_memory(const MemoryRange& range, const std::vector<MemoryArea>& areas,
                          DriverSays driver);

}  // namespace nezha
