// SPDX-License-Identifier: Apache-2.0
// Hash tables that stay intact when an allocation fails. Abseil's do not if there is no memory for
// them to grow.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/out_of_memory.h"

namespace nezha {

// An allocator that frees the reserve and tries again if an allocation fails.
template <typename T>
struct ReserveAllocator {
  using value_type = T;  // NOLINT(readability-identifier-naming): as allocators name it

  ReserveAllocator() = default;
  template <typename U>
  ReserveAllocator(const ReserveAllocator<U>& /*other*/) {}  // NOLINT: as allocators convert

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    void* memory = ::operator new(bytes, std::nothrow);
    if (memory == nullptr) {
      free_reserve();
      memory = ::operator new(bytes, std::nothrow);
    }
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t /*count*/) { ::operator delete(memory); }

  friend bool operator==(const ReserveAllocator&, const ReserveAllocator&) { return true; }
};

template <typename Key, typename Value, typename Plain = absl::flat_hash_map<Key, Value>>
using HashMap = absl::flat_hash_map<Key, Value, typename Plain::hasher, typename Plain::key_equal,
                                    ReserveAllocator<std::pair<const Key, Value>>>;
template <typename Key, typename Plain = absl::flat_hash_set<Key>>
using HashSet = absl::flat_hash_set<Key, typename Plain::hasher, typename Plain::key_equal,
                                    ReserveAllocator<Key>>;

}  // namespace nezha
