// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/core/aggregation.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "flare_offload/wire/frame.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/reference.h"

namespace nezha::flare {
namespace {

constexpr size_t kElements = 5;
using Block = std::vector<float>;

// The values have several magnitudes, so that another order of summation gives other bits.
const Block& contribution(int child) {
  static const std::vector<Block> kAll = [] {
    std::mt19937 random(1);
    std::vector<Block> all(kMaxChildren, Block(kElements));
    for (Block& block : all) {
      for (float& value : block) {
        value = static_cast<float>(random()) / static_cast<float>(1U << (random() % 30));
      }
    }
    return all;
  }();
  return kAll[static_cast<size_t>(child)];
}

// The sum in the order of the hosts' reproducible algorithms.
Block over_tree(int children) {
  Block sum(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    std::vector<float> operands(static_cast<size_t>(children));
    for (int child = 0; child < children; ++child) {
      operands[static_cast<size_t>(child)] = contribution(child)[i];
    }
    sum[i] = nezha::over_tree(ReduceOperation::kSum, operands);
  }
  return sum;
}

const std::byte* bytes_of(const Block& block) {
  return reinterpret_cast<const std::byte*>(block.data());
}

Block added(Aggregation& aggregation, const std::vector<int>& order) {
  aggregation.begin(reduction(DataType::kFloat32, ReduceOperation::kSum), kElements,
                    kElements * sizeof(float));
  for (const int child : order) {
    aggregation.add(child, bytes_of(contribution(child)));
  }
  Block total(kElements);
  std::memcpy(total.data(), aggregation.total(), kElements * sizeof(float));
  return total;
}

std::vector<int> in_order(int children) {
  std::vector<int> order(static_cast<size_t>(children));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST(SingleBuffer, AddsInTheOrderOfArrival) {
  std::vector<float> memory(kElements);
  SingleBuffer single(reinterpret_cast<std::byte*>(memory.data()));
  for (const std::vector<int>& order : {std::vector<int>{2, 0, 1}, {0, 1, 2}}) {
    Block expected = contribution(order[0]);
    for (const int child : {order[1], order[2]}) {
      for (size_t i = 0; i < kElements; ++i) expected[i] += contribution(child)[i];
    }
    EXPECT_EQ(added(single, order), expected);
  }
}

class Tree : public ::testing::TestWithParam<int> {
 protected:
  static constexpr size_t kBufferBytes = 64;
  const int children_ = GetParam();
  const int buffers_ = TreeShape::buffers(children_);
  const TreeShape shape_{children_};
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBufferBytes * buffers_);
  TreeAggregation tree_{shape_, memory_.data(), kBufferBytes};
};

// The tree uses no more buffers than it has; the address sanitizer would report others.
TEST_P(Tree, AddsInTheTreesOrderWhateverTheOrderOfArrival) {
  const Block expected = over_tree(children_);
  std::vector<int> order = in_order(children_);
  if (children_ <= 6) {
    do {
      ASSERT_EQ(added(tree_, order), expected);
    } while (std::next_permutation(order.begin(), order.end()));
  }
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    ASSERT_EQ(added(tree_, order), expected);
  }
}

TEST_P(Tree, AddsInTheOrderThatNeedsMostBuffers) {
  std::vector<int> order = in_order(children_);
  std::stable_partition(order.begin(), order.end(), [](int child) { return child % 2 == 0; });
  EXPECT_EQ(added(tree_, order), over_tree(children_));
}

INSTANTIATE_TEST_SUITE_P(Children, Tree,
                         ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 31, 64));

}  // namespace
}  // namespace nezha::flare
