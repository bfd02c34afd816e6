// SPDX-License-Identifier: Apache-2.0
#include "common/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <new>

#include "common/out_of_memory.h"

namespace nezha {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kSmallest = 256;

size_t rounded(size_t size) { return std::bit_ceil(std::max(size, kSmallest)); }
size_t size_class(size_t rounded_size) {
  return static_cast<size_t>(std::countr_zero(rounded_size));
}

}  // namespace

void Buffer::reset() {
  if (data_ != nullptr) pool_->give_back(data_, size_);
  pool_ = nullptr;
  data_ = nullptr;
  size_ = 0;
}

BufferPool::~BufferPool() {
  for (size_t log = 0; log < idle_.size(); ++log) {
    for (std::byte* block : idle_[log]) free(block, size_t{1} << log);
  }
}

Buffer BufferPool::take(size_t size) {
  const size_t bytes = rounded(size);
  {
    const std::lock_guard lock(mutex_);
    bytes_in_use_ += bytes;
    auto& blocks = idle_[size_class(bytes)];
    if (!blocks.empty()) {
      std::byte* block = blocks.back();
      blocks.pop_back();
      idle_bytes_ -= bytes;
      return {this, block, size};
    }
  }
  void* block = ::operator new(bytes, kAlignment, std::nothrow);
  if (block == nullptr) {
    const std::lock_guard lock(mutex_);
    bytes_in_use_ -= bytes;
    throw OutOfMemory(bytes);
  }
  auto* data = static_cast<std::byte*>(block);
  if (listener_.came != nullptr) listener_.came(data, bytes);
  return {this, data, size};
}

void BufferPool::give_back(std::byte* data, size_t size) noexcept {
  const size_t bytes = rounded(size);
  try {
    const std::lock_guard lock(mutex_);
    bytes_in_use_ -= bytes;
    if (idle_bytes_ + bytes <= kMaxIdleBytes) {
      idle_[size_class(bytes)].push_back(data);
      idle_bytes_ += bytes;
      return;
    }
  } catch (const std::bad_alloc&) {
    // There is no memory to keep it.
  }
  free(data, bytes);
}

void BufferPool::free(std::byte* block, size_t bytes) noexcept {
  if (listener_.goes != nullptr) listener_.goes(block, bytes);
  ::operator delete(block, kAlignment);
}

size_t BufferPool::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  return bytes_in_use_;
}

}  // namespace nezha
