// SPDX-License-Identifier: Apache-2.0
#include "collectives/chunk_map.h"

#include <random>
#include <vector>

#include "collectives/engine.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

constexpr size_t kBytes = 40;

ChunkMap map_of(const std::vector<bool>& bytes) {
  ChunkMap map;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!bytes[i]) continue;
    if (!map.empty() && map.back().offset + map.back().length == i) {
      ++map.back().length;
    } else {
      map.push_back({i, 1});
    }
  }
  return map;
}

std::vector<std::pair<size_t, size_t>> plain(const ChunkMap& map) {
  std::vector<std::pair<size_t, size_t>> ranges;
  for (const Range& range : map) ranges.emplace_back(range.offset, range.length);
  return ranges;
}

TEST(ChunkMap, AgreesWithASetOfBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<bool> bytes[2];
    ChunkMap maps[2];
    for (int side : {0, 1}) {
      bytes[side].resize(kBytes);
      for (size_t count = random() % 6; count > 0; --count) {
        const Range range{random() % kBytes, random() % 8};
        const size_t length = std::min(range.length, kBytes - range.offset);
        add(maps[side], {range.offset, length});
        for (size_t i = 0; i < length; ++i) bytes[side][range.offset + i] = true;
      }
      ASSERT_EQ(plain(maps[side]), plain(map_of(bytes[side])));
    }
    std::vector<bool> less(kBytes);
    std::vector<bool> both(kBytes);
    for (size_t i = 0; i < kBytes; ++i) {
      less[i] = bytes[0][i] && !bytes[1][i];
      both[i] = bytes[0][i] && bytes[1][i];
    }
    ASSERT_EQ(plain(difference(maps[0], maps[1])), plain(map_of(less)));
    ASSERT_EQ(plain(intersection(maps[0], maps[1])), plain(map_of(both)));
  }
}

// With every algorithm, the slices of all lanes together cover each byte of the vector once.
TEST(ChunkMap, SlicesAreTheWholeVector) {
  Operation op;
  op.elements = 1001;
  op.element_size = 4;
  const SliceBounds bounds[] = {{0, 300'000}, {300'000, 700'000}, {700'000, SliceBounds::kWhole}};
  for (const ScheduleKind schedule : {ScheduleKind::kRing, ScheduleKind::kBcube}) {
    ChunkMap all;
    for (const SliceBounds& slice : bounds) {
      const ChunkMap ranges = ranges_of(op, slice, schedule, 3);
      EXPECT_EQ(ranges.size(), schedule == ScheduleKind::kRing ? 3u : 1u);
      EXPECT_TRUE(intersection(all, ranges).empty());
      for (const Range& range : ranges) add(all, range);
    }
    EXPECT_EQ(plain(all), plain({{0, op.bytes()}}));
  }
}

}  // namespace
}  // namespace nezha
