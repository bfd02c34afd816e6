// SPDX-License-Identifier: Apache-2.0
// Repairs by two ranks whose channels are joined by in-memory links.
#include "context/repair.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/hosts/hosts_engine.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/fake_link.h"

namespace nezha {
namespace {

using testing::FakeNetwork;

constexpr size_t kElements = 64 << 10;
constexpr size_t kBytes = kElements * sizeof(uint32_t);
constexpr uint32_t kUntouched = 0xdead;

// A rank that takes part in the operation.
struct Member final : TaskOwner {
  std::vector<uint32_t> vector = std::vector<uint32_t>(kElements, kUntouched);
  std::vector<std::unique_ptr<Task>> tasks;
  void on_finished(Task&) override {}
  bool is_done() const {
    return std::all_of(tasks.begin(), tasks.end(),
                       [](const auto& task) { return task->poll() == Task::State::kDone; });
  }
};

class RepairTest : public ::testing::Test {
 protected:
  RepairTest() {
    auto made = Progress::create();
    EXPECT_TRUE(made.ok());
    progress_ = *std::move(made);
    guard_ = std::make_unique<Progress::Guard>(*progress_);
    network_ = std::make_unique<FakeNetwork>(*progress_, 1, 2);
    for (int rank : {0, 1}) {
      Group& group = groups_[static_cast<size_t>(rank)];
      group = {.rank = rank,
               .size = 2,
               .context = FakeNetwork::kJob.low,
               .channels = {},
               .pool = &pool_};
      group.channels.resize(2);
      group.channels[static_cast<size_t>(1 - rank)] = &network_->channel(rank);
    }
  }
  ~RepairTest() override {
    for (Member& member : members_) member.tasks.clear();
    network_.reset();
    guard_.reset();
  }

  // The rank's part in the operation, in place.
  Slice part(int rank) {
    Slice slice;
    Operation& op = slice.operation;
    op.output = reinterpret_cast<std::byte*>(members_[static_cast<size_t>(rank)].vector.data());
    op.input = op.output;
    op.elements = kElements;
    op.element_size = sizeof(uint32_t);
    op.type = DataType::kUint32;
    op.tag = 3;
    op.ordinal = 9;
    slice.lane = 1;
    return slice;
  }
  absl::Status start(int rank, const Repair::Piece& piece, uint32_t number) {
    const auto index = static_cast<size_t>(rank);
    const auto made = repair_slice(piece, number, part(rank), ScheduleKind::kRing, groups_[index]);
    if (!made.ok()) return made.status();
    auto task = hosts_.start(groups_[index], made->slice, {made->schedule, 0, 1}, members_[index]);
    if (!task.ok()) return task.status();
    members_[index].tasks.push_back(*std::move(task));
    return absl::OkStatus();
  }

  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Progress::Guard> guard_;  // held throughout, so that no other thread drives
  BufferPool pool_;
  std::unique_ptr<FakeNetwork> network_;
  std::array<Group, 2> groups_;
  std::array<Member, 2> members_;
  HostsEngine hosts_;
};

constexpr Range kFront{0, kBytes / 4};
constexpr Range kMiddle{kBytes / 4, kBytes / 4};

TEST_F(RepairTest, CopiesWhatARankHasAndReducesTheRestAgain) {
  for (size_t i = 0; i < kElements / 4; ++i) members_[0].vector[i] = static_cast<uint32_t>(i);
  for (Member& member : members_) {
    for (size_t i = kElements / 4; i < kElements / 2; ++i)
      member.vector[i] = static_cast<uint32_t>(7 * i);
  }
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(start(rank, {kFront, 0}, 1).ok());
    ASSERT_TRUE(start(rank, {kMiddle, Repair::kNobody}, 2).ok());
  }
  network_->settle_down();
  for (const Member& member : members_) {
    EXPECT_TRUE(member.is_done());
    for (size_t i = 0; i < kElements; ++i) {
      const uint32_t wanted = i < kElements / 4   ? static_cast<uint32_t>(i)
                              : i < kElements / 2 ? static_cast<uint32_t>(14 * i)
                                                  : kUntouched;
      ASSERT_EQ(member.vector[i], wanted) << i;
    }
  }
}

TEST_F(RepairTest, ARankThatReturnedSuppliesWhatItsEngineRetained) {
  for (size_t i = 0; i < kElements / 4; ++i) members_[0].vector[i] = 5;
  std::vector<Retained> retained(2);
  retained[0] = {3, 8, 1, kMiddle.offset, std::vector<std::byte>(kMiddle.length)};  // not this one
  retained[1] = {3, 9, 1, kMiddle.offset - 8, std::vector<std::byte>(kMiddle.length + 8)};
  for (size_t i = 0; i < kMiddle.length; i += 4) std::memcpy(&retained[1].bytes[i + 8], &i, 4);
  Repair repair{{3, 9}, {{kFront, 0}, {kMiddle, 1}}};
  int over = 0;
  Bystander bystander([&](Bystander&, const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    ++over;
  });
  ASSERT_TRUE(bystander.start(hosts_, groups_[1], 1, 1, repair, 1, retained).ok());
  for (uint32_t i = 0; i < 2; ++i) ASSERT_TRUE(start(0, repair.pieces[i], i + 1).ok());
  network_->settle_down();
  EXPECT_EQ(over, 1);
  EXPECT_TRUE(members_[0].is_done());
  for (size_t i = 0; i < kElements; ++i) {
    const uint32_t wanted = i < kElements / 4   ? 5
                            : i < kElements / 2 ? static_cast<uint32_t>(i * 4 - kMiddle.offset)
                                                : kUntouched;
    ASSERT_EQ(members_[0].vector[i], wanted) << i;
    ASSERT_EQ(members_[1].vector[i], kUntouched) << i;  // this rank has returned
  }
}

// In a broadcast only the root has the input, and no rank may write to it.
TEST_F(RepairTest, TheRootSuppliesTheMissingPartsOfABroadcast) {
  const std::vector<uint32_t> input(kElements, 5);
  for (const int rank : {0, 1}) {
    const auto index = static_cast<size_t>(rank);
    Slice slice = part(rank);
    slice.operation.collective = Collective::kBroadcast;
    slice.operation.root = 1;
    slice.operation.input = rank == 1 ? reinterpret_cast<const std::byte*>(input.data()) : nullptr;
    const auto made =
        repair_slice({kMiddle, Repair::kNobody}, 1, slice, ScheduleKind::kRing, groups_[index]);
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made->slice.operation.input == nullptr, rank == 0);
    auto task = hosts_.start(groups_[index], made->slice, {made->schedule, 0, 1}, members_[index]);
    ASSERT_TRUE(task.ok());
    members_[index].tasks.push_back(*std::move(task));
  }
  network_->settle_down();
  for (const Member& member : members_) EXPECT_TRUE(member.is_done());
  for (size_t i = 0; i < kElements; ++i) {
    const bool is_in_it = i >= kElements / 4 && i < kElements / 2;
    ASSERT_EQ(members_[0].vector[i], is_in_it ? 5 : kUntouched) << i;
  }
}

TEST_F(RepairTest, InvalidPiecesAreErrors) {
  EXPECT_FALSE(start(0, {{0, kBytes + 4}, 1}, 1).ok()) << "behind the end";
  EXPECT_FALSE(start(0, {{2, 4}, 1}, 1).ok()) << "it cuts an element";
  EXPECT_FALSE(start(0, {{0, 4}, 2}, 1).ok()) << "no such rank";
  Slice slice = part(0);
  slice.bounds = {0, SliceBounds::kWhole / 2};
  EXPECT_FALSE(repair_slice({kMiddle, 1}, 1, slice, ScheduleKind::kRing, groups_[0]).ok())
      << "it belongs to another slice";
  Bystander bystander([](Bystander&, const absl::Status&) {});
  const auto stand_by = [&](const Repair::Piece& piece) {
    return bystander.start(hosts_, groups_[0], 1, 1, {{3, 9}, {piece}}, 1, {}).ok();
  };
  EXPECT_FALSE(stand_by({kFront, Repair::kNobody})) << "a rank that returned has all of it";
  EXPECT_FALSE(stand_by({kFront, 2}));
  EXPECT_FALSE(stand_by({kFront, 0})) << "it has released its memory";
}

}  // namespace
}  // namespace nezha
