// SPDX-License-Identifier: Apache-2.0
// Memory that stays mapped as it is for now. A device that must prepare memory before it can move
// its contents prepares only such memory, and learns when to let go of it.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/fork.h"
#include "common/recycled.h"

namespace nezha {

// The ranges that parts of this process hold, and the listeners that are told of them. Thread-safe.
// Its lock is the innermost: any thread may call it, with or without Progress's lock.
class HeldMemory {
 public:
  using Span = absl::Span<const std::byte>;

  // In bytes. Links copy anything shorter in any case, so holding it does nothing.
  static constexpr size_t kLeast = size_t{16} << 10;

  // Is told of a range when its first holder comes and when its last one goes, and not in between.
  // It is called under the lock of HeldMemory, by any thread. So it may call neither HeldMemory nor
  // anything that takes Progress's lock.
  class Listener {
   public:
    // May throw std::bad_alloc: then it does not know the range.
    virtual void hold(const std::byte* begin, size_t bytes) = 0;
    // The memory may go once this has returned. The range may be one that `hold` has thrown for.
    virtual void release(const std::byte* begin, size_t bytes) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  // Returns the object of the process. A child of fork() has another one.
  static HeldMemory& of_process();

  // If there is no memory to remember the range, it is not held.
  void hold(Span range) noexcept;
  // Takes back one `hold` of the same range, before the memory goes and when no link touches it any
  // more. A range that nobody holds is left alone.
  void release(Span range) noexcept;

  // The listener is also told of what is held already. It stays until `remove`, which tells it
  // nothing, and after which it is not called.
  void add(Listener* listener);
  void remove(Listener* listener) noexcept;

 private:
  std::mutex mutex_;
  RecycledMap<std::pair<const std::byte*, size_t>, size_t> holders_;  // keyed by range
  std::vector<Listener*> listeners_;
};

// Holds a range of memory as long as this object lives; see HeldMemory.
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
