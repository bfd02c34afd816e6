// SPDX-License-Identifier: Apache-2.0
#include "collectives/signature.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

Operation operation(size_t elements) {
  Operation result;
  result.elements = elements;
  result.element_size = 4;
  result.tag = 0x80000007;
  return result;
}

TEST(Signature, HasEachFieldInItsPlace) {
  EXPECT_EQ(signature(ScheduleKind::kRing, operation(5)), 0x0101010100000005u);
  EXPECT_EQ(signature(ScheduleKind::kRecursiveDoubling, operation(5)), 0x0102010100000005u);
  // The count wraps beyond 32 bits; the length of the message still differs.
  EXPECT_EQ(signature(ScheduleKind::kRing, operation((size_t{1} << 32) + 5)), 0x0101010100000005u);
}

TEST(Signature, TellsWhatIsReproducible) {
  Operation reproducible = operation(5);
  reproducible.reproducible = true;
  EXPECT_EQ(signature(ScheduleKind::kDirect, reproducible), 0x0184010100000005u);
  Slice slice;
  slice.operation = reproducible;
  const EnginePlan plan{ScheduleKind::kDirect, 0, 0};
  const wire::MessageInfo ours = message_info({}, slice, plan, 20);
  slice.operation.reproducible = false;
  const wire::MessageInfo theirs = message_info({}, slice, plan, 20);
  const std::string text(mismatch_error(2, 4, ours, theirs).message());
  EXPECT_NE(text.find("by direct, reproducible, 20 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("by direct, 20 bytes"), std::string::npos) << text;
}

TEST(Signature, MessagesOfSlicesDifferByTheirLane) {
  Group group;
  group.context = 77;
  Slice slice;
  slice.operation = operation(5);
  slice.lane = 3;
  const EnginePlan plan{ScheduleKind::kRing, 8, 9};
  const wire::MessageInfo info = message_info(group, slice, plan, 20);
  EXPECT_EQ(info.context, 77u);
  EXPECT_EQ(info.tag, 0x0000000380000007u);
  EXPECT_EQ(info.total, 20u);
  EXPECT_EQ(info.plan, 8u);
  EXPECT_EQ(info.epoch, 9u);
}

TEST(Signature, AMismatchNamesThePeerAndBothCalls) {
  Group group;
  Slice slice;
  slice.operation = operation(5);
  const wire::MessageInfo ours = message_info(group, slice, {ScheduleKind::kRing, 0, 0}, 20);
  slice.operation = operation(6);
  const wire::MessageInfo theirs =
      message_info(group, slice, {ScheduleKind::kRecursiveDoubling, 0, 0}, 24);
  const std::string text(mismatch_error(2, 4, ours, theirs).message());
  for (const char* part : {"rank 2 allreduce of 5", "rank 4 allreduce of 6", "5 elements",
                           "6 elements", "ring", "recursive-doubling", "float32", "2147483655"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }
}

TEST(Signature, ADisagreementNamesTheRankAndBothCalls) {
  const uint64_t ours = signature(ScheduleKind::kRing, operation(5));
  const uint64_t theirs = signature(ScheduleKind::kDirect, operation(6));
  const std::string text(disagreement_error(2, 4, 0x80000007, ours, theirs).message());
  for (const char* part : {"rank 2 allreduce of 5", "rank 4 allreduce of 6", "5 elements",
                           "6 elements", "ring", "direct", "2147483655"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }
}

TEST(Signature, AMismatchNamesCollectivesAndRoots) {
  Slice slice;
  slice.operation = operation(5);
  slice.operation.collective = Collective::kReduce;
  slice.operation.root = 70'000;
  const wire::MessageInfo ours = message_info({}, slice, {ScheduleKind::kTree, 0, 0}, 20);
  slice.operation.root = 2;
  const wire::MessageInfo other_root = message_info({}, slice, {ScheduleKind::kTree, 0, 0}, 20);
  EXPECT_NE(ours, other_root);
  const auto expect_parts = [&](const wire::MessageInfo& theirs,
                                const std::vector<std::string>& all) {
    const std::string text(mismatch_error(2, 4, ours, theirs).message());
    for (const std::string& part : all) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
    }
  };
  expect_parts(other_root, {"reduce to rank 70000", "reduce to rank 2", "by tree"});
  slice.operation.collective = Collective::kBroadcast;
  expect_parts(message_info({}, slice, {ScheduleKind::kTree, 0, 0}, 20), {"broadcast from rank 2"});
  slice.operation.collective = Collective::kBarrier;
  expect_parts(message_info({}, slice, {ScheduleKind::kDissemination, 0, 0}, 0),
               {"barrier, by dissemination"});
  slice.operation.collective = static_cast<Collective>(200);  // a peer may send this value
  expect_parts(message_info({}, slice, {ScheduleKind::kTree, 0, 0}, 20), {"collective 200"});
}

TEST(Signature, AMismatchOfCountsListsThem) {
  Slice slice;
  slice.operation = operation(5);
  slice.operation.collective = Collective::kAllgather;
  const auto with_counts = [&](const std::vector<size_t>& counts) {
    slice.operation.blocks = std::make_shared<Blocks>(counts, sizeOf(slice.operation.type));
    return message_info({}, slice, {ScheduleKind::kRing, 0, 0}, 20);
  };
  const wire::MessageInfo theirs = with_counts({2, 1, 3});
  const wire::MessageInfo ours = with_counts({1, 2, 3});
  const std::string text(mismatch_error(2, 4, ours, theirs, slice.operation).message());
  for (const char* part : {"ranks 2 and 4 pass different counts to one allgather",
                           "rank 2 passes 1, 2, 3 (6 in all), and rank 4 passes other ones"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }
}

TEST(Signature, AMismatchNamesTypesAndOperations) {
  Slice slice;
  slice.operation = operation(5);
  slice.operation.type = DataType::kBFloat16;
  slice.operation.operation = ReduceOperation::kAverage;
  const wire::MessageInfo ours = message_info({}, slice, {ScheduleKind::kRing, 0, 0}, 20);
  slice.operation.type = static_cast<DataType>(200);  // a peer may send this value
  slice.operation.operation = static_cast<ReduceOperation>(201);
  const wire::MessageInfo theirs = message_info({}, slice, {ScheduleKind::kRing, 0, 0}, 20);
  const std::string text(mismatch_error(2, 4, ours, theirs).message());
  for (const char* part : {"type bfloat16", "operation average", "type 200", "operation 201"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }
}

}  // namespace
}  // namespace nezha
