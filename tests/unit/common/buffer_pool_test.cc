// SPDX-License-Identifier: Apache-2.0
#include "common/buffer_pool.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

TEST(BufferPool, GivesAlignedMemoryOfTheSizeAskedFor) {
  BufferPool pool;
  for (const size_t size : {0, 1, 255, 256, 257, 100'000}) {
    const Buffer buffer = pool.take(size);
    EXPECT_TRUE(buffer);
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    std::memset(buffer.data(), 1, size);
  }
  EXPECT_EQ(pool.bytes_in_use(), 0u);
}

TEST(BufferPool, TakesMemoryThatWasGivenBack) {
  BufferPool pool;
  Buffer buffer = pool.take(1000);
  const std::byte* const memory = buffer.data();
  EXPECT_EQ(pool.bytes_in_use(), 1024u);
  buffer.reset();
  EXPECT_FALSE(buffer);
  EXPECT_EQ(pool.bytes_in_use(), 0u);
  const Buffer again = pool.take(600);
  EXPECT_EQ(again.data(), memory);
  const Buffer other = pool.take(600);
  EXPECT_NE(other.data(), memory);
  EXPECT_EQ(pool.bytes_in_use(), 2048u);
}

TEST(BufferPool, BuffersMove) {
  BufferPool pool;
  Buffer one = pool.take(10);
  const std::byte* const memory = one.data();
  Buffer two = std::move(one);
  EXPECT_EQ(two.data(), memory);
  Buffer three;
  EXPECT_FALSE(three);
  three = std::move(two);
  EXPECT_EQ(three.data(), memory);
  EXPECT_EQ(pool.bytes_in_use(), 256u);
  three.reset();
  three.reset();
  EXPECT_EQ(pool.bytes_in_use(), 0u);
}

// The sizes of the blocks by address.
std::map<const std::byte*, size_t>& blocks() {
  static auto& all = *new std::map<const std::byte*, size_t>;
  return all;
}

TEST(BufferPool, TellsTheListenerOfAllocatedBlocks) {
  const BufferPool::Listener listener{
      .came = [](const std::byte* block, size_t bytes) noexcept { blocks()[block] = bytes; },
      .goes =
          [](const std::byte* block, size_t bytes) noexcept {
            EXPECT_EQ(blocks()[block], bytes);
            EXPECT_EQ(*block, std::byte{7}) << "it is not gone yet";
            blocks().erase(block);
          }};
  {
    BufferPool pool(listener);
    Buffer small = pool.take(1000);
    EXPECT_EQ(blocks()[small.data()], 1024u);
    small.reset();
    EXPECT_EQ(blocks().size(), 1u) << "the pool keeps it";
    small = pool.take(1000);
    Buffer large = pool.take(65 << 20);
    *small.data() = *large.data() = std::byte{7};
    EXPECT_EQ(blocks()[large.data()], size_t{128} << 20);
    EXPECT_EQ(blocks().size(), 2u);
    large.reset();
    EXPECT_EQ(blocks().size(), 1u) << "it is too large to be kept";
  }
  EXPECT_TRUE(blocks().empty());
}

TEST(BufferPool, LiveBuffersDoNotOverlapInManyThreads) {
  BufferPool pool;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 2000; ++i) {
        const Buffer buffer = pool.take(static_cast<size_t>(i % 700) + 1);
        std::memset(buffer.data(), t, buffer.size());
        const Buffer second = pool.take(300);
        std::memset(second.data(), 9, second.size());
        for (size_t k = 0; k < buffer.size(); k += 50) {
          ASSERT_EQ(static_cast<int>(buffer.data()[k]), t);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(pool.bytes_in_use(), 0u);
}

}  // namespace
}  // namespace nezha
