// SPDX-License-Identifier: Apache-2.0
#include "collectives/partition.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

TEST(Partition, ChunksAndSlicesCoverTheVectorExactly) {
  const std::vector<std::vector<uint32_t>> cuts{{0, SliceBounds::kWhole},
                                                {0, SliceBounds::kWhole / 3, SliceBounds::kWhole},
                                                {0, 1, 700'000, 700'001, SliceBounds::kWhole}};
  for (const size_t element_size : {size_t{1}, size_t{4}, size_t{8}, size_t{12}, size_t{100}}) {
    for (const size_t elements : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17},
                                  size_t{1000}, size_t{4099}, size_t{1} << 20}) {
      for (int chunks = 1; chunks <= 17; ++chunks) {
        const Partition partition(elements, element_size, chunks);
        for (const auto& bounds : cuts) {
          size_t next = 0;
          for (int i = 0; i < chunks; ++i) {
            for (size_t s = 0; s + 1 < bounds.size(); ++s) {
              const Range range = partition.chunk(i, {bounds[s], bounds[s + 1]});
              ASSERT_EQ(range.offset, next);
              ASSERT_EQ(range.offset % element_size, 0u);
              next = range.offset + range.length;
              if (next != elements * element_size) {
                ASSERT_EQ(next % partition.granule(), 0u);
              }
            }
          }
          ASSERT_EQ(next, elements * element_size);
        }
      }
    }
  }
}

TEST(Partition, ChunksAreEqualToOneGranule) {
  const Partition partition(100'000, 4, 7);
  for (int i = 0; i + 1 < 7; ++i) {
    const size_t here = partition.chunk(i, {}).length;
    const size_t next = partition.chunk(i + 1, {}).length;
    EXPECT_GE(here, next);
    EXPECT_LE(here - next, 2 * partition.granule());
  }
  EXPECT_EQ(partition.granule(), 64u);
  EXPECT_EQ(Partition(1, 12, 1).granule(), 60u);
  EXPECT_EQ(Partition(1, 100, 1).granule(), 100u);
}

TEST(Partition, SlicesHaveTheirPartOfEachChunk) {
  const Partition partition(1 << 20, 4, 4);
  for (int i = 0; i < 4; ++i) {
    const Range whole = partition.chunk(i, {});
    const Range half = partition.chunk(i, {0, SliceBounds::kWhole / 2});
    EXPECT_EQ(half.offset, whole.offset);
    EXPECT_EQ(half.length, whole.length / 2);
  }
}

TEST(Partition, HugeVectorsDoNotOverflow) {
  constexpr size_t kElements = size_t{1} << 40;
  for (const int chunks : {1, 3, 1000}) {
    const Partition partition(kElements, 4, chunks);
    size_t next = 0;
    for (int i = 0; i < chunks; ++i) {
      for (const SliceBounds bounds :
           {SliceBounds{0, 999'999}, SliceBounds{999'999, SliceBounds::kWhole}}) {
        const Range range = partition.chunk(i, bounds);
        ASSERT_EQ(range.offset, next);
        next += range.length;
      }
    }
    EXPECT_EQ(next, kElements * 4);
  }
}

}  // namespace
}  // namespace nezha
