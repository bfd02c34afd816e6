// SPDX-License-Identifier: Apache-2.0
// The library's own work may throw exceptions, std::bad_alloc above all. The thread that drives
// that work (transport/progress.h) catches them, and the contexts of the process break.
#pragma once

#include <array>
#include <cstddef>
#include <new>

#include "absl/status/status.h"

namespace nezha {

// The text says how many bytes were asked for.
class OutOfMemory final : public std::bad_alloc {
 public:
  explicit OutOfMemory(size_t bytes);
  const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 128> text_;
};

// Sets a little memory aside for the process, so that enough is left to handle a failure: to unwind
// what was begun, and to tell the other ranks. Does nothing if the memory is already there. Throws.
void keep_reserve();
// Gives it back to the allocator.
void free_reserve() noexcept;

// Returns what was caught, as an error, and frees the reserve. Is called in a catch block. If there
// is no memory for the error's text, the error has none.
absl::Status caught_status() noexcept;

}  // namespace nezha
