// SPDX-License-Identifier: Apache-2.0
// Operations whose engine is lost: what they report, and how they go on.
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "context/running_operation.h"
#include "gtest/gtest.h"
#include "tests/unit/context/operation_fixture.h"

namespace nezha {
namespace {

using TaskState = Task::State;

bool are_equal(const ChunkMap& a, const ChunkMap& b) {
  return difference(a, b).empty() && difference(b, a).empty();
}

// The hosts carry the first half of each operation, and a switch that is lost the second.
class RunningOperationRepairTest : public testing::OperationFixture {
 protected:
  static constexpr int kLane = 1;  // the switch's
  static constexpr Range kPart{kBytes / 2, kBytes / 2};
  static constexpr Range kFront{kBytes / 2, kBytes / 4};
  static constexpr Range kBack{kBytes / 4 * 3, kBytes / 4};

  // Returns an operation whose part on the switch has ended with `final`, and is frozen.
  std::shared_ptr<RunningOperation> frozen(const ChunkMap& final, TaskState end) {
    auto operation = started({&hosts_, &switch_});
    switch_.tasks[0]->final = final;
    if (end != TaskState::kRunning) switch_.tasks[0]->finish(end);
    report_ = operation->freeze(switch_, group_.size);
    hosts_.tasks[0]->finish(TaskState::kDone);
    return operation;
  }
  void expect_impossible(RunningOperation& operation, int lane, const Repair* repair) {
    const absl::Status status = this->repair(operation, lane, repair);
    EXPECT_EQ(status.message(),
              "it asks for an impossible repair of allreduce (tag 3, 4096 bytes)");
    EXPECT_EQ(hosts_.started, 1);
    EXPECT_FALSE(operation.over());
  }

  std::optional<FrozenPart> report_;
};

TEST_F(RunningOperationRepairTest, ALossIsToldOfAndDoesNotEndTheOperation) {
  for (const bool is_at_once : {false, true}) {
    switch_.begins_as = is_at_once ? TaskState::kLost : TaskState::kRunning;
    const auto operation = started({&hosts_, &switch_});
    if (!is_at_once) switch_.tasks.back()->finish(TaskState::kLost);
    EXPECT_EQ(owner_.lost, std::vector<int>{kLane});
    owner_.lost.clear();
    hosts_.tasks.back()->finish(TaskState::kDone);
    EXPECT_FALSE(operation->over());
  }
  EXPECT_TRUE(owner_.failures.empty());
}

TEST_F(RunningOperationRepairTest, AFrozenPartReportsWhatItHasAndWhatItLacks) {
  const auto operation = frozen({kFront}, TaskState::kRunning);
  EXPECT_EQ(switch_.fenced, 1);
  ASSERT_TRUE(report_.has_value());
  EXPECT_EQ(report_->operation, operation->id());
  EXPECT_TRUE(are_equal(report_->final, {kFront}));
  EXPECT_TRUE(are_equal(report_->missing, {kBack}));
  EXPECT_FALSE(operation->over()) << "its second half is missing";
  EXPECT_EQ(operation->lane_times(2), LaneTimes(2)) << "the times say nothing";
}

TEST_F(RunningOperationRepairTest, OperationsWithoutAPartOnTheEngineGoOn) {
  const auto operation = started({&hosts_});
  EXPECT_FALSE(operation->freeze(switch_, group_.size).has_value());
  EXPECT_TRUE(repair(*operation, kLane, nullptr).ok());
  EXPECT_EQ(hosts_.fenced, 0);
  EXPECT_EQ(hosts_.started, 1);
  hosts_.tasks[0]->finish(TaskState::kDone);
  EXPECT_TRUE(operation->over());
}

TEST_F(RunningOperationRepairTest, TheHostsCarryThePartAgainIfNobodyHasAnyOfIt) {
  const auto operation = frozen({}, TaskState::kLost);
  const Repair again{operation->id(), {}};
  EXPECT_TRUE(repair(*operation, kLane, &again).ok());
  ASSERT_EQ(hosts_.started, 2);
  const auto& [slice, plan] = std::pair(hosts_.tasks.back()->slice, hosts_.tasks.back()->plan);
  EXPECT_EQ(slice.bounds.begin, SliceBounds::kWhole / 2);
  EXPECT_EQ(slice.bounds.end, SliceBounds::kWhole);
  EXPECT_EQ(slice.lane, kLane);
  EXPECT_EQ(slice.piece, 0u);
  EXPECT_EQ(slice.rails, group_.rails);
  EXPECT_EQ(plan.version, 5u);
  EXPECT_FALSE(operation->over());
  hosts_.tasks.back()->finish(TaskState::kDone);
  EXPECT_TRUE(operation->over());
}

TEST_F(RunningOperationRepairTest, APartThatWaitedForTheRepairIsCarriedByTheHosts) {
  const auto operation = started({&hosts_, nullptr});
  hosts_.tasks[0]->finish(TaskState::kDone);
  EXPECT_FALSE(operation->freeze(switch_, group_.size).has_value()) << "it had not begun";
  EXPECT_FALSE(operation->over());
  EXPECT_TRUE(repair(*operation, kLane, nullptr).ok());
  ASSERT_EQ(hosts_.started, 2);
  hosts_.tasks.back()->finish(TaskState::kDone);
  EXPECT_TRUE(operation->over());
}

// Another rank may still lack a piece of it, which this rank would have to give.
TEST_F(RunningOperationRepairTest, ARankThatHasTheWholeResultWaitsForTheRepair) {
  for (const TaskState end : {TaskState::kDone, TaskState::kLost}) {
    hosts_.started = 0;
    const auto operation = frozen({kPart}, end);
    EXPECT_TRUE(report_->missing.empty());
    EXPECT_FALSE(operation->over());
    EXPECT_TRUE(repair(*operation, kLane, nullptr).ok());
    EXPECT_TRUE(operation->over());
    EXPECT_EQ(hosts_.started, 1) << "it carried something again";
    setup_.progress().run_deferred();
  }
}

TEST_F(RunningOperationRepairTest, PiecesReplaceThePart) {
  const auto operation = frozen({kFront}, TaskState::kLost);
  const Repair pieces{operation->id(), {{kFront, 0}, {kBack, Repair::kNobody}}};
  EXPECT_TRUE(repair(*operation, kLane, &pieces, /*number=*/4).ok());
  ASSERT_EQ(hosts_.started, 3);
  for (const uint32_t i : {0u, 1u}) {
    EXPECT_FALSE(operation->over());
    testing::FakeTask& task = *hosts_.tasks[1 + i];
    EXPECT_EQ(task.slice.piece, 4 + i);
    EXPECT_EQ(task.slice.operation.bytes(), kBytes / 4);
    EXPECT_EQ(task.plan.epoch, 9u);
    task.finish(TaskState::kDone);
  }
  EXPECT_TRUE(operation->over());
}

TEST_F(RunningOperationRepairTest, AFailureDuringTheRepairFailsIt) {
  const auto operation = frozen({kFront}, TaskState::kLost);
  hosts_.refusal = absl::UnavailableError("rank 1 has left");
  const Repair pieces{operation->id(), {{kFront, 0}, {kBack, Repair::kNobody}}};
  EXPECT_TRUE(repair(*operation, kLane, &pieces).ok()) << "the repair was possible";
  EXPECT_TRUE(operation->over());
  EXPECT_EQ(error_of(*operation), "nezha: rank 0 of 2: rank 1 has left");
}

// ---- Repairs that contradict what this rank has reported ---------------------------------------

TEST_F(RunningOperationRepairTest, APartThatLacksSomethingNeedsARepair) {
  const auto operation = frozen({kFront}, TaskState::kLost);
  expect_impossible(*operation, kLane, nullptr);
}

TEST_F(RunningOperationRepairTest, APartThatIsCompleteIsNotCarriedAgain) {
  const auto operation = frozen({kPart}, TaskState::kLost);
  const Repair again{operation->id(), {}};
  expect_impossible(*operation, kLane, &again);
}

TEST_F(RunningOperationRepairTest, NobodyHasPiecesOfAPartThatHasNotBegunHere) {
  const auto operation = started({&hosts_, nullptr});
  const Repair pieces{operation->id(), {{kFront, 1}}};
  expect_impossible(*operation, kLane, &pieces);
  expect_impossible(*operation, 0, &pieces);  // the hosts carry that lane
}

TEST_F(RunningOperationRepairTest, PiecesOutsideOfThePartAreErrors) {
  const auto operation = frozen({kFront}, TaskState::kLost);
  const Repair pieces{operation->id(), {{{0, kBytes / 4}, 1}}};
  EXPECT_FALSE(repair(*operation, kLane, &pieces).ok());
  EXPECT_EQ(hosts_.started, 1);
}

}  // namespace
}  // namespace nezha
