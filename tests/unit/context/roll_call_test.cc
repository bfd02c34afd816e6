#include "context/roll_call.h"

#include "gtest/gtest.h"

namespace nezha {
namespace {

wire::RollCall call(uint32_t tag, uint64_t ordinal,
                    uint32_t absent = wire::RollCall::kWhoIsAbsent) {
  return {.context = {1, 2}, .tag = tag, .ordinal = ordinal, .absent = absent};
}

TEST(RollCall, CountsTheOperationsOfEachTag) {
  RollCall roll_call;
  EXPECT_FALSE(roll_call.has_entered(call(7, 1)));
  EXPECT_EQ(roll_call.enter(7), 1u);
  EXPECT_EQ(roll_call.enter(8), 1u);
  EXPECT_EQ(roll_call.enter(7), 2u);
  EXPECT_TRUE(roll_call.has_entered(call(7, 2)));
  EXPECT_FALSE(roll_call.has_entered(call(7, 3)));
  EXPECT_FALSE(roll_call.has_entered(call(9, 1)));
}

TEST(RollCall, PassesNewsOnOnce) {
  RollCall roll_call;
  EXPECT_TRUE(roll_call.hear(call(7, 1)));
  EXPECT_FALSE(roll_call.hear(call(7, 1)));
  EXPECT_TRUE(roll_call.hear(call(7, 1, 3)));
  EXPECT_FALSE(roll_call.hear(call(7, 1, 3)));
  EXPECT_TRUE(roll_call.hear(call(7, 2)));
  EXPECT_TRUE(roll_call.hear(call(8, 1, 3))) << "an answer may overtake its question";
  EXPECT_FALSE(roll_call.hear(call(7, 1)));
}

TEST(RollCall, NamesWhoIsAbsent) {
  RollCall roll_call;
  EXPECT_EQ(roll_call.absent(7, 1), "");
  roll_call.hear(call(7, 1));
  EXPECT_EQ(roll_call.absent(7, 1), "");
  roll_call.hear(call(7, 1, 5));
  EXPECT_EQ(roll_call.absent(7, 1), "rank 5 has not entered it");
  roll_call.hear(call(7, 1, 2));
  EXPECT_EQ(roll_call.absent(7, 1), "ranks 2, 5 have not entered it");
  EXPECT_EQ(roll_call.absent(7, 2), "");
}

TEST(RollCall, KeepsABoundedAmount) {
  RollCall roll_call;
  for (uint32_t rank = 0; rank < 1000; ++rank) roll_call.hear(call(1, 1, rank));
  EXPECT_LT(roll_call.absent(1, 1).size(), 120u);
  for (uint64_t ordinal = 2; ordinal < 1000; ++ordinal) roll_call.hear(call(1, ordinal));
  EXPECT_EQ(roll_call.absent(1, 1), "") << "forgotten";
}

}  // namespace
}  // namespace nezha
