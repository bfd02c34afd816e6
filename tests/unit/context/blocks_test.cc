// SPDX-License-Identifier: Apache-2.0
#include "context/blocks.h"

#include <array>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

using Counts = std::vector<size_t>;
constexpr int kRanks = 3;

class PlaceBlocksTest : public ::testing::Test {
 protected:
  // A vector of bytes that begins at index `at` of memory_.
  GivenVector vector(size_t at, size_t elements) {
    return {memory_.data() + at, DataType::kUint8, elements, {}, false, true};
  }
  GivenVector vector(size_t at, const Counts& counts) {
    return {memory_.data() + at, DataType::kUint8, 0, counts, true, true};
  }
  absl::Status place(Collective collective, int rank, const GivenVector& input,
                     const GivenVector& output, int root = 0) {
    op_ = {};
    op_.collective = collective;
    op_.root = root;
    return place_blocks(input, output, rank, kRanks, op_);
  }
  void expect_refused(const absl::Status& status, const std::string& what) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), what)) << status;
  }
  size_t offset(const std::byte* place) const {
    return static_cast<size_t>(place - memory_.data());
  }

  std::array<std::byte, 256> memory_{};
  Operation op_;
  const GivenVector none_{};
};

TEST_F(PlaceBlocksTest, AnAllgathersInputIsABlockOfItsOutput) {
  ASSERT_TRUE(place(Collective::kAllgather, 1, vector(100, 10), vector(0, 30)).ok());
  EXPECT_EQ(op_.elements, 30U);
  EXPECT_EQ(op_.input_offset, 10U);
  EXPECT_EQ(op_.output_offset, 0U);
  EXPECT_EQ(input_bytes(op_, 1), 10U);
  EXPECT_EQ(output_bytes(op_, 1), 30U);
}

TEST_F(PlaceBlocksTest, WithoutAnInputTheOwnBlockOfTheOutputIsTheInput) {
  ASSERT_TRUE(place(Collective::kAllgather, 2, none_, vector(0, Counts{5, 0, 7})).ok());
  EXPECT_EQ(offset(op_.input_at(op_.blocks->block(2).offset)), 5U);
}

TEST_F(PlaceBlocksTest, ABlockMayLieInItsPlaceAndNowhereElse) {
  EXPECT_TRUE(place(Collective::kAllgather, 1, vector(10, 10), vector(0, 30)).ok());
  for (const size_t at : {0, 9, 11, 20}) {
    expect_refused(place(Collective::kAllgather, 1, vector(at, 10), vector(0, 30)), "overlap");
    expect_refused(place(Collective::kGather, 1, vector(at, 10), vector(0, 30), 1), "overlap");
    expect_refused(place(Collective::kScatter, 1, vector(0, 30), vector(at, 10), 1), "overlap");
  }
  EXPECT_TRUE(place(Collective::kScatter, 1, vector(0, 30), vector(10, 10), 1).ok());
}

TEST_F(PlaceBlocksTest, AReduceScattersResultMayBeAtItsInputsBegin) {
  EXPECT_TRUE(place(Collective::kReduceScatter, 2, vector(0, 30), vector(0, 10)).ok());
  EXPECT_TRUE(place(Collective::kReduceScatter, 2, vector(0, 30), vector(20, 10)).ok());
  expect_refused(place(Collective::kReduceScatter, 2, vector(0, 30), vector(10, 10)), "overlap");
}

TEST_F(PlaceBlocksTest, AnEmptyBlockOverlapsNothing) {
  const Counts counts{5, 0, 7};
  EXPECT_TRUE(place(Collective::kAllgather, 1, vector(3, 0), vector(0, counts)).ok());
}

TEST_F(PlaceBlocksTest, AnAlltoallvHasTwoVectorsOfBlocks) {
  ASSERT_TRUE(
      place(Collective::kAlltoallv, 0, vector(100, Counts{1, 2, 3}), vector(0, Counts{1, 20, 30}))
          .ok());
  EXPECT_EQ(op_.bytes(), 6U);
  EXPECT_EQ(output_bytes(op_, 0), 51U);
  EXPECT_EQ(op_.blocks_received().block(2).offset, 21U);
  expect_refused(
      place(Collective::kAlltoallv, 1, vector(100, Counts{1, 2, 3}), vector(0, Counts{1, 20, 30})),
      "sends itself 2 elements but receives 20");
}

TEST_F(PlaceBlocksTest, RanksBesidesTheRootGiveTheirOwnBlock) {
  ASSERT_TRUE(place(Collective::kGather, 2, vector(0, 10), none_).ok());
  EXPECT_EQ(op_.output, nullptr);
  EXPECT_EQ(op_.elements, 30U);
  ASSERT_TRUE(place(Collective::kGatherv, 2, vector(0, 10), none_).ok());
  EXPECT_EQ(op_.blocks->block(2).length, 10U);
  ASSERT_TRUE(place(Collective::kScatter, 2, none_, vector(0, 10)).ok());
  EXPECT_EQ(op_.input, nullptr);
  expect_refused(place(Collective::kScatter, 2, none_, none_), "no output");
  expect_refused(place(Collective::kScatter, 0, none_, vector(0, 10)), "no input");
  EXPECT_TRUE(place(Collective::kScatter, 0, vector(0, 30), none_).ok());
}

}  // namespace
}  // namespace nezha
