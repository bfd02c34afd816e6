// SPDX-License-Identifier: Apache-2.0
#include "transport/loss.h"

#include <random>

#include "gtest/gtest.h"

namespace nezha {
namespace {

// A link that loses one packet in `one_in` (0: none), and is judged every few packets.
class Path {
 public:
  explicit Path(uint64_t seed) : random_(seed) {}

  // Sends packets, `most` or a few more, until the link is judged as `until_lossy`. Returns their
  // number.
  uint64_t send(Loss& loss, uint64_t one_in, uint64_t most, bool until_lossy) {
    uint64_t packets = 0;
    while (packets < most && loss.is_lossy() != until_lossy) {
      const uint64_t burst = 1 + random_() % 30;
      for (uint64_t i = 0; i < burst; ++i) total_.lost += one_in != 0 && random_() % one_in == 0;
      packets += burst;
      total_.sent += burst;
      loss.look(total_);
    }
    return packets;
  }

 private:
  std::mt19937_64 random_;
  Link::Packets total_;
};

TEST(LossTest, OnePacketInTwentyIsFoundSoonAndOneInThreeHundredNever) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Loss loss;
    Path path(seed);
    path.send(loss, 300, 3000, true);
    EXPECT_FALSE(loss.is_lossy());
    EXPECT_LT(path.send(loss, 20, 3000, true), 3000u);
    EXPECT_TRUE(loss.is_lossy());
  }
}

TEST(LossTest, ItIsOverWhenEnoughHasArrivedInARow) {
  Loss loss;
  Path path(1);
  path.send(loss, 20, 3000, true);
  ASSERT_TRUE(loss.is_lossy());
  EXPECT_GE(path.send(loss, 4, 1000, false), 1000u);  // with such losses the judgement lasts
  EXPECT_LT(path.send(loss, 0, 1000, false), 200u);
  EXPECT_FALSE(loss.is_lossy());
}

TEST(LossTest, ANewLinkCountsAnewAndInheritsTheJudgement) {
  Loss loss;
  EXPECT_FALSE(loss.look({1000, 100}));
  EXPECT_TRUE(loss.look({2000, 200}));
  loss.begin();
  EXPECT_FALSE(loss.look({10, 0}));
  EXPECT_TRUE(loss.is_lossy());
  EXPECT_TRUE(loss.look({100, 0}));
  EXPECT_FALSE(loss.is_lossy());
}

TEST(LossTest, ABurstOfLossesIsNoLossyLink) {
  Loss loss;
  for (uint64_t i = 1; i < 10; ++i) {
    EXPECT_FALSE(loss.look({i * 1000, i * 60}));
    EXPECT_FALSE(loss.look({i * 1000 + 500, i * 60}));
  }
}

TEST(LossTest, WhatIsPassedOverDoesNotCount) {
  Loss loss;
  for (uint64_t i = 1; i < 10; ++i) {
    loss.pass_over({i * 1000, i * 300});
    EXPECT_FALSE(loss.look({i * 1000 + 500, i * 300}));
  }
  EXPECT_FALSE(loss.look({10'000, 3200}));
  EXPECT_TRUE(loss.look({10'500, 3300})) << "later losses count";
}

// Packets that were counted as lost turn out to be duplicates.
TEST(LossTest, LossesMayBeTakenBack) {
  Loss loss;
  for (uint64_t i = 1; i < 10; ++i) {
    EXPECT_FALSE(loss.look({i * 1000 - 950, 50}));
    EXPECT_FALSE(loss.look({i * 1000, 0}));
  }
  EXPECT_FALSE(loss.is_lossy());
}

TEST(LossTest, ALinkThatSoonLosesAgainIsLeftAloneLonger) {
  Loss loss;
  Path path(1);
  for (const uint64_t least : {64U, 128U, 256U, 512U, 1024U, 1024U}) {
    path.send(loss, 20, 3000, true);
    ASSERT_TRUE(loss.is_lossy());
    EXPECT_GE(path.send(loss, 0, 3000, false), least);
    EXPECT_FALSE(loss.is_lossy());
  }
  path.send(loss, 0, 30'000, true);
  path.send(loss, 20, 3000, true);
  EXPECT_LT(path.send(loss, 0, 3000, false), 128U);
}

}  // namespace
}  // namespace nezha
