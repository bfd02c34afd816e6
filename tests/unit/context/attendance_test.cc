// SPDX-License-Identifier: Apache-2.0
#include "context/attendance.h"

#include <set>

#include "gtest/gtest.h"

namespace nezha {
namespace {

using wire::RollCallKind;

constexpr uint64_t kOurs = 100;  // a signature

wire::RollCall entered(uint32_t tag, uint64_t ordinal, uint32_t rank, uint64_t signature = kOurs) {
  return {.context = {1, 2},
          .tag = tag,
          .rank = rank,
          .ordinal = ordinal,
          .signature = signature,
          .kind = RollCallKind::kEntered};
}

wire::RollCall question(uint32_t tag, uint64_t ordinal, uint32_t rank) {
  wire::RollCall call = entered(tag, ordinal, rank);
  call.kind = RollCallKind::kWhoIsAbsent;
  return call;
}

wire::RollCall absent(uint32_t tag, uint64_t ordinal, uint32_t rank) {
  wire::RollCall call = entered(tag, ordinal, rank, 0);
  call.kind = RollCallKind::kAbsent;
  return call;
}

wire::RollCall silent(uint32_t tag, uint64_t ordinal, uint32_t rank) {
  wire::RollCall call = absent(tag, ordinal, rank);
  call.kind = RollCallKind::kSilent;
  return call;
}

TEST(Attendance, CountsTheOperationsOfEachTag) {
  Attendance attendance;
  EXPECT_FALSE(attendance.has_entered(7, 1));
  EXPECT_EQ(attendance.enter(7, kOurs), 1u);
  EXPECT_EQ(attendance.enter(8, kOurs), 1u);
  EXPECT_EQ(attendance.enter(7, kOurs), 2u);
  EXPECT_TRUE(attendance.has_entered(7, 2));
  EXPECT_FALSE(attendance.has_entered(7, 3));
  EXPECT_FALSE(attendance.has_entered(9, 1));
}

TEST(Attendance, PassesNewsOnOnce) {
  Attendance attendance;
  EXPECT_TRUE(attendance.hear(question(7, 1, 0)));
  EXPECT_FALSE(attendance.hear(question(7, 1, 0)));
  EXPECT_FALSE(attendance.hear(question(7, 1, 2))) << "the same question";
  EXPECT_TRUE(attendance.hear(absent(7, 1, 3)));
  EXPECT_FALSE(attendance.hear(absent(7, 1, 3)));
  EXPECT_TRUE(attendance.hear(question(7, 2, 0)));
  EXPECT_TRUE(attendance.hear(absent(8, 1, 3))) << "an answer may overtake its question";
  EXPECT_FALSE(attendance.hear(question(7, 1, 0)));
}

TEST(Attendance, PassesOnTheFirstOfEachSignature) {
  Attendance attendance;
  EXPECT_TRUE(attendance.hear(entered(7, 1, 0)));
  EXPECT_FALSE(attendance.hear(entered(7, 1, 1)));
  EXPECT_TRUE(attendance.hear(entered(7, 1, 2, 200)));
  EXPECT_TRUE(attendance.hear(question(7, 1, 0))) << "nobody has asked this yet";
}

TEST(Attendance, ALateEntryEndsTheAbsence) {
  Attendance attendance;
  attendance.hear(question(7, 1, 0));
  attendance.hear(absent(7, 1, 5));
  attendance.hear(absent(7, 1, 6));
  EXPECT_TRUE(attendance.has_said_absent(5, 7, 1));
  EXPECT_TRUE(attendance.hear(entered(7, 1, 5))) << "the others must hear of it";
  EXPECT_FALSE(attendance.hear(entered(7, 1, 5)));
  EXPECT_FALSE(attendance.hear(absent(7, 1, 5))) << "this message took a longer way";
  EXPECT_EQ(attendance.absentees(7, 1), std::set<uint32_t>{6});
}

TEST(Attendance, NamesWhoIsAbsent) {
  Attendance attendance;
  EXPECT_EQ(attendance.absent(7, 1), "");
  attendance.hear(question(7, 1, 0));
  EXPECT_EQ(attendance.absent(7, 1), "");
  attendance.hear(absent(7, 1, 5));
  EXPECT_EQ(attendance.absent(7, 1), "rank 5 has not entered it");
  attendance.hear(absent(7, 1, 2));
  EXPECT_EQ(attendance.absent(7, 1), "ranks 2, 5 have not entered it");
  EXPECT_EQ(attendance.absent(7, 2), "");
}

TEST(Attendance, NamesWhoDoesNotAnswer) {
  Attendance attendance;
  EXPECT_TRUE(attendance.hear(silent(7, 1, 4)));
  EXPECT_FALSE(attendance.hear(silent(7, 1, 4)));
  EXPECT_EQ(attendance.absent(7, 1), "rank 4 has not answered");
  attendance.hear(silent(7, 1, 2));
  attendance.hear(absent(7, 1, 5));
  EXPECT_EQ(attendance.absent(7, 1), "rank 5 has not entered it; ranks 2, 4 have not answered");
  EXPECT_TRUE(attendance.hear(absent(7, 1, 4))) << "it answers others";
  EXPECT_EQ(attendance.absent(7, 1), "ranks 4, 5 have not entered it; rank 2 has not answered");
  EXPECT_EQ(attendance.silent(7, 1), std::set<uint32_t>{2});
  EXPECT_EQ(attendance.absentees(7, 1), (std::set<uint32_t>{4, 5}));
}

TEST(Attendance, KnowsWhoCallsAnotherOperation) {
  Attendance attendance;
  attendance.hear(entered(7, 1, 3, 200));
  EXPECT_FALSE(attendance.other(7, 1).has_value()) << "this rank has not entered it";
  attendance.enter(7, kOurs);
  ASSERT_TRUE(attendance.other(7, 1).has_value());
  EXPECT_EQ(attendance.other(7, 1)->rank, 3u);
  EXPECT_EQ(attendance.other(7, 1)->signature, 200u);
  EXPECT_EQ(attendance.signature(7, 1), kOurs);

  attendance.enter(7, kOurs);
  attendance.hear(entered(7, 2, 3));
  EXPECT_FALSE(attendance.other(7, 2).has_value()) << "they agree";
  attendance.hear(question(7, 2, 4));
  EXPECT_FALSE(attendance.other(7, 2).has_value());
  attendance.hear(entered(7, 2, 5, 300));
  ASSERT_TRUE(attendance.other(7, 2).has_value()) << "though it is not the first that was heard";
  EXPECT_EQ(attendance.other(7, 2)->rank, 5u);
}

TEST(Attendance, ForgetsWhatItEnteredLongAgo) {
  Attendance attendance;
  attendance.hear(entered(7, 1, 3, 200));
  for (int i = 0; i < 1000; ++i) attendance.enter(7, kOurs);
  EXPECT_EQ(attendance.signature(7, 1), 0u);
  EXPECT_FALSE(attendance.other(7, 1).has_value());
  EXPECT_EQ(attendance.signature(7, 1000), kOurs);
}

TEST(Attendance, KeepsABoundedAmount) {
  Attendance attendance;
  for (uint32_t rank = 0; rank < 1000; ++rank) attendance.hear(absent(1, 1, rank));
  EXPECT_LT(attendance.absent(1, 1).size(), 120u);
  int passed_on = 0;
  for (uint32_t rank = 0; rank < 1000; ++rank) passed_on += attendance.hear(entered(1, 1, 0, rank));
  EXPECT_LT(passed_on, 100);
  for (uint64_t ordinal = 2; ordinal < 1000; ++ordinal) attendance.hear(question(1, ordinal, 0));
  EXPECT_EQ(attendance.absent(1, 1), "") << "forgotten";
}

}  // namespace
}  // namespace nezha
