// SPDX-License-Identifier: Apache-2.0
/// Memory that a program keeps and uses in many operations.
#pragma once

#include <cstddef>
#include <memory>

#include "nezha/export.h"

namespace nezha {

class Hold;

/// Memory that nezha may leave registered with RDMA devices; `registerMemory` makes it. The program
/// keeps the memory itself, and must destroy this before it frees, unmaps, moves (mremap) or
/// discards (madvise) any of it. It may do so at any time, also before or after there is a context.
/// Operations that use the memory at that time go on.
///
/// Each object may be used by one thread at a time. In a child of fork() one of the parent's does
/// nothing.
class NEZHA_EXPORT RegisteredMemory {
 public:
  /// Of no memory.
  RegisteredMemory();
  /// nezha lets go of the memory.
  ~RegisteredMemory();
  /// Takes the memory over; `other` has none any more.
  RegisteredMemory(RegisteredMemory&& other) noexcept;
  /// Takes the memory over; nezha lets go of what this one had.
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;

 private:
  friend NEZHA_EXPORT RegisteredMemory registerMemory(const void* data, size_t bytes);
  std::unique_ptr<Hold> hold_;
};

/// Tells nezha that these `bytes` bytes stay where they are until the result is destroyed. It makes
/// operations on this memory, or on parts of it, faster over rdma rails, and does nothing else:
/// without it such a rail registers an operation's memory when the operation uses it, and takes the
/// registration back at the operation's end. The memory may be read-only if operations only read
/// it. It may be registered several times, and ranges may overlap.
///
/// It is pinned when operations use it, and counts toward the process's limit of locked memory
/// (ulimit -l) and toward NEZHA_RDMA_PINNED. Beyond these limits, and where the device refuses the
/// memory, it is as if it were not registered. Thread-safe. Throws InvalidArgument if `data` is
/// null and `bytes` is not 0, and std::bad_alloc.
NEZHA_EXPORT RegisteredMemory registerMemory(const void* data, size_t bytes);

}  // namespace nezha
