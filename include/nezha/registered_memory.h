// SPDX-License-Identifier: Apache-2.0
/// Memory that a program keeps and uses in many operations.
#pragma once

#include <cstddef>
#include <memory>

#include "nezha/export.h"

namespace nezha {

class Hold;

/// Memory that nezha may leave registered with RDMA devices; `registerMemory` makes it. The memory
/// itself stays the program's. The program must destroy this object before it frees, unmaps, moves
/// (mremap) or discards (madvise) any of the memory. It may do so at any time, even before or after
/// there is a context. Operations that use the memory at that time continue.
///
/// Each object may be used by one thread at a time. In a child of fork() an object of the parent's
/// does nothing.
class NEZHA_EXPORT RegisteredMemory {
 public:
  /// An object without memory.
  RegisteredMemory();
  /// Ends the registration: nezha lets go of the memory.
  ~RegisteredMemory();
  /// Takes over the memory of `other`, which then has none.
  RegisteredMemory(RegisteredMemory&& other) noexcept;
  /// Takes over the memory of `other`. nezha lets go of the memory that this object had.
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;

 private:
  friend NEZHA_EXPORT RegisteredMemory registerMemory(const void* data, size_t bytes);
  std::unique_ptr<Hold> hold_;
};

/// Tells nezha that the `bytes` bytes at `data` stay where they are until the result is destroyed.
/// This makes operations on this memory, or on parts of it, faster over rdma rails, and has no
/// other effect. Without it such a rail registers an operation's memory when the operation uses it,
/// and ends that registration at the operation's end. The memory may be read-only if operations
/// only read it. It may be registered several times, and ranges may overlap.
///
/// The memory is pinned when operations use it, and counts toward the process's limit of locked
/// memory (ulimit -l) and toward NEZHA_RDMA_PINNED. Memory beyond these limits, or that the device
/// refuses, is treated as if it were not registered. Thread-safe. Throws InvalidArgument if `data`
/// is null and `bytes` is not 0, and std::bad_alloc.
NEZHA_EXPORT RegisteredMemory registerMemory(const void* data, size_t bytes);

}  // namespace nezha
