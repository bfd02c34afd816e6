// SPDX-License-Identifier: Apache-2.0
// Memory that stays mapped as it is for now. A device that has to prepare memory before it can move
// what is in it prepares such memory alone, and knows when to let go of it.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/fork.h"
#include "common/recycled.h"

namespace nezha {

// The ranges that somebody of this process holds, and who is told of them. Thread-safe. Its lock is
// the innermost: any thread may call it, whether or not that has Progress's lock.
class HeldMemory {
 public:
  using Span = absl::Span<const std::byte>;

  // Bytes. Links copy what is shorter in any case, and to hold it does nothing.
  static constexpr size_t kLeast = size_t{16} << 10;

  // Is told of a range when the first holder of it comes and when the last one goes, and not of
  // those in between. It is called under the lock of HeldMemory, by any thread, and so may call
  // neither HeldMemory nor what takes Progress's lock.
  class Listener {
   public:
    // May throw std::bad_alloc: then it does not know the range.
    virtual void hold(const std::byte* begin, size_t bytes) = 0;
    // The memory may go once this has returned. The range may be one that `hold` has thrown for.
    virtual void release(const std::byte* begin, size_t bytes) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  // Of the process. A child of fork() has another one.
  static HeldMemory& of_process();

  // Without memory to remember the range it is not held.
  void hold(Span range) noexcept;
  // Takes back one `hold` of the same range, before the memory goes and when no link touches it any
  // more. A range that nobody holds is left alone.
  void release(Span range) noexcept;

  // The listener is told of what is held already, too. It stays until `remove`, which tells it
  // nothing, and after which it is not called.
  void add(Listener* listener);
  void remove(Listener* listener) noexcept;

 private:
  std::mutex mutex_;
  RecycledMap<std::pair<const std::byte*, size_t>, size_t> holders_;  // by range
  std::vector<Listener*> listeners_;
};

// Holds a range of memory as long as it lives; see HeldMemory.
class Hold {
 public:
  Hold() = default;
  Hold(const void* begin, size_t bytes) noexcept {
    if (bytes < HeldMemory::kLeast || begin == nullptr) return;
    range_ = {static_cast<const std::byte*>(begin), bytes};
    HeldMemory::of_process().hold(range_);
  }
  Hold(Hold&& other) noexcept : range_(std::exchange(other.range_, {})), mark_(other.mark_) {}
  Hold& operator=(Hold&& other) noexcept {
    std::swap(range_, other.range_);
    std::swap(mark_, other.mark_);
    return *this;
  }
  ~Hold() { release(); }

  void release() noexcept {
    if (range_.empty()) return;
    if (!mark_.is_inherited()) HeldMemory::of_process().release(range_);
    range_ = {};
  }

 private:
  HeldMemory::Span range_;  // empty: it holds nothing
  ForkMark mark_;
};

}  // namespace nezha
