// SPDX-License-Identifier: Apache-2.0
// Replaces operator new in a program that counts allocations or makes them fail. Include it once;
// the program defines may_allocate().
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

// The program defines this. Called before each allocation of `size` bytes; if false, it fails.
bool may_allocate(size_t size);

void* allocate(size_t size, size_t alignment) {
  if (!may_allocate(size)) return nullptr;
  const size_t whole = (size + alignment - 1) / alignment * alignment;
  return alignment <= alignof(std::max_align_t) ? std::malloc(size == 0 ? 1 : size)
                                                : std::aligned_alloc(alignment, whole);
}

void* allocate_or_throw(size_t size, size_t alignment) {
  void* memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

[[gnu::noinline]] void* operator new(size_t size) { return allocate_or_throw(size, 1); }
[[gnu::noinline]] void* operator new[](size_t size) { return allocate_or_throw(size, 1); }
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, 1);
}
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment,
                                     const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
