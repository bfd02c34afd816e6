// SPDX-License-Identifier: Apache-2.0
#include "common/recycled.h"

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

// Allocates blocks of all sizes and writes each byte.
void use_blocks(unsigned char mark) {
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (size_t bytes = 1; bytes < 20000; bytes += bytes / 3 + 1) {
    auto* block = static_cast<unsigned char*>(take_recycled(bytes));
    std::memset(block, mark, bytes);
    blocks.emplace_back(block, bytes);
  }
  for (const auto& [block, bytes] : blocks) {
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(block[i], mark);
    recycle(block, bytes);
  }
}

TEST(Recycled, BlocksAreWholeAndUnshared) {
  std::vector<std::thread> threads;
  for (unsigned char mark = 1; mark <= 4; ++mark) {
    threads.emplace_back([mark] {
      for (int i = 0; i < 100; ++i) use_blocks(mark);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Recycled, SurplusBlocksGoToTheAllocator) {
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(take_recycled(4096));
  for (void* block : blocks) recycle(block, 4096);
}

struct Base : Recycled {
  virtual ~Base() = default;
};
struct Large final : Base {
  std::array<char, 1000> bytes{};
};

TEST(Recycled, ObjectsGoBackWithTheSizeThatTheyHave) {
  for (int i = 0; i < 100; ++i) {
    const std::unique_ptr<Base> object = std::make_unique<Large>();
    std::memset(static_cast<Large&>(*object).bytes.data(), i, 1000);
  }
  std::vector<int, RecyclingAllocator<int>> numbers;
  for (int i = 0; i < 10000; ++i) numbers.push_back(i);
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(numbers[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace nezha
