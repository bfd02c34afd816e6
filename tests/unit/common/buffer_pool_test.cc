// SPDX-License-Identifier: Apache-2.0
#include "common/buffer_pool.h"

#include <cstdint>
#include <cstring>
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
