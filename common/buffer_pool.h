// SPDX-License-Identifier: Apache-2.0
// Scratch memory that is taken and given back without going to the allocator each time.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace nezha {

class BufferPool;

// Memory from a pool, aligned to cache lines. It goes back to the pool when the Buffer is
// destroyed, and must not outlive the pool.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() { reset(); }

  void reset();
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }  // the size that was asked for
  explicit operator bool() const { return data_ != nullptr; }

 private:
  friend class BufferPool;
  Buffer(BufferPool* pool, std::byte* data, size_t size) : pool_(pool), data_(data), size_(size) {}

  BufferPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A pool of memory for buffers. It is thread-safe.
class BufferPool {
 public:
  // A listener is told of the memory that the pool has from the allocator, in use or idle: after it
  // came, and before it goes. Any thread may call it, without the pool's lock.
  struct Listener {
    void (*came)(const std::byte* block, size_t bytes) noexcept;  // null: nobody
    void (*goes)(const std::byte* block, size_t bytes) noexcept;
  };

  BufferPool() = default;
  explicit BufferPool(Listener listener) : listener_(listener) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Takes a buffer of at least one byte, also for size 0, so that a Buffer that was taken is true.
  // Throws OutOfMemory.
  Buffer take(size_t size);

  size_t bytes_in_use() const;  // rounded up to size classes

 private:
  friend class Buffer;
  // Idle memory beyond this goes back to the allocator.
  static constexpr size_t kMaxIdleBytes = size_t{64} << 20;

  void give_back(std::byte* data, size_t size) noexcept;
  void free(std::byte* block, size_t bytes) noexcept;

  const Listener listener_{};
  mutable std::mutex mutex_;
  std::array<std::vector<std::byte*>, 64> idle_;  // indexed by log2 of the size
  size_t idle_bytes_ = 0;
  size_t bytes_in_use_ = 0;
};

}  // namespace nezha
