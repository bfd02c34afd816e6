// SPDX-License-Identifier: Apache-2.0
// Memory of objects that each operation makes anew. It is kept when the objects are destroyed, so
// that the steady state takes none from the allocator. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace nezha {

// These work like operator new and operator delete, which they use for more than a few KiB. Blocks
// of similar sizes are interchangeable, and the total that is kept is bounded.
void* take_recycled(size_t bytes);
void recycle(void* memory, size_t bytes) noexcept;

// The base of classes whose objects are made by new.
struct Recycled {
  // NOLINTNEXTLINE(misc-new-delete-overloads): the one that follows is told of the size
  static void* operator new(size_t bytes) { return take_recycled(bytes); }
  static void operator delete(void* memory, size_t bytes) noexcept { recycle(memory, bytes); }
};

// An allocator for containers and std::allocate_shared.
template <typename T>
struct RecyclingAllocator {
  using value_type = T;  // NOLINT(readability-identifier-naming): as allocators name it

  RecyclingAllocator() = default;
  template <typename U>
  RecyclingAllocator(const RecyclingAllocator<U>& /*other*/) {}  // NOLINT: as allocators convert

  T* allocate(size_t count) { return static_cast<T*>(take_recycled(bytes_of(count))); }
  void deallocate(T* memory, size_t count) noexcept { recycle(memory, bytes_of(count)); }

  friend bool operator==(const RecyclingAllocator&, const RecyclingAllocator&) { return true; }

 private:
  static size_t bytes_of(size_t count) {
    return count * sizeof(T);  // NOLINT(bugprone-sizeof-expression): T may be a pointer
  }
};

template <typename T>
using RecycledVector = std::vector<T, RecyclingAllocator<T>>;
// A deque takes a block, and gives one back, every few elements that move through it.
template <typename T>
using RecycledDeque = std::deque<T, RecyclingAllocator<T>>;
template <typename Key, typename Value>
using RecycledMap =
    std::map<Key, Value, std::less<>, RecyclingAllocator<std::pair<const Key, Value>>>;

}  // namespace nezha
