// SPDX-License-Identifier: Apache-2.0
#include "common/recycled.h"

#include <array>
#include <mutex>
#include <new>

#include "common/fork.h"

namespace nezha {
namespace {

constexpr size_t kStep = 128;  // bytes from one size of blocks to the next
constexpr size_t kSizes = 64;
constexpr size_t kMostKept = 1 << 20;  // bytes

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeeps = false;  // so that the sanitizer sees a use after free
#elif defined(__has_feature)
constexpr bool kKeeps = !__has_feature(address_sanitizer);
#else
constexpr bool kKeeps = true;
#endif

// Returns the index for blocks of `bytes`; kSizes if they are too large to be kept.
size_t size_index(size_t bytes) {
  if (!kKeeps || bytes == 0 || bytes > kSizes * kStep) return kSizes;
  return (bytes - 1) / kStep;
}

class Blocks {
 public:
  // Returns null if there is none.
  void* take(size_t index) {
    const std::lock_guard lock(mutex_);
    Kept* first = kept_[index];
    if (first == nullptr) return nullptr;
    kept_[index] = first->next;
    bytes_ -= (index + 1) * kStep;
    return first;
  }
  // Returns whether the memory is kept.
  bool keep(void* memory, size_t index) {
    const size_t bytes = (index + 1) * kStep;
    const std::lock_guard lock(mutex_);
    if (bytes_ + bytes > kMostKept) return false;
    bytes_ += bytes;
    kept_[index] = new (memory) Kept{kept_[index]};
    return true;
  }

 private:
  struct Kept {
    Kept* next;
  };

  std::mutex mutex_;
  std::array<Kept*, kSizes> kept_{};
  size_t bytes_ = 0;
};

// A child of fork() has blocks of its own, because a thread that the child lacks may hold the lock
// of its parent's.
Blocks& blocks() {
  static PerProcess<Blocks> per_process;
  return per_process.get();
}

}  // namespace

void* take_recycled(size_t bytes) {
  const size_t index = size_index(bytes);
  if (index == kSizes) return ::operator new(bytes);
  void* memory = blocks().take(index);
  return memory != nullptr ? memory : ::operator new((index + 1) * kStep);
}

void recycle(void* memory, size_t bytes) noexcept {
  const size_t index = size_index(bytes);
  try {
    if (index < kSizes && blocks().keep(memory, index)) return;
  } catch (const std::bad_alloc&) {
    // There is no memory for the blocks of a child of fork().
  }
  ::operator delete(memory);
}

}  // namespace nezha
