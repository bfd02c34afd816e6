// SPDX-License-Identifier: Apache-2.0
// A switch's rail that no other rail is beside: it carries what it can, and can be lost.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "context/planner.h"
#include "gtest/gtest.h"
#include "tests/unit/context/planner_fixture.h"

namespace nezha {
namespace {

using testing::PlannedRank;

class PlannerSwitchTest : public testing::PlannerFixture {
 protected:
  PlannerSwitchTest() {
    open_all(usual(), /*has_switch=*/true);
    run_until([&] { return are_on_switch(); });
  }
  bool is_some_on_switch() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const auto& rank) { return is_on_switch(*rank); });
  }
};

TEST_F(PlannerSwitchTest, CarriesWhatItCan) {
  for (const Collective collective :
       {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast}) {
    run([&](PlannedRank& rank) {
      Request request = rank.request(1, collective);
      const bool is_reduce = collective == Collective::kReduce;
      if (is_reduce && rank.setup.rank() != 0) request.operation.output = nullptr;
      return request;
    });
    EXPECT_TRUE(are_on_switch());
    for (const auto& rank : ranks_) {
      const PlannedRank::Way& way = latest(*rank);
      EXPECT_EQ(way.slices.size(), 1u);
      EXPECT_NE(way.slices[0].slice.operation.output, nullptr) << "it could not repair others";
      EXPECT_EQ(way.has_gate, collective != Collective::kAllreduce);
    }
    EXPECT_EQ(latest(*ranks_[1]).has_scratch, collective == Collective::kReduce);
  }
  for (const auto& rank : ranks_) rank->engine.unsupported = absl::UnimplementedError("not that");
  run();
  expect_sums();
  EXPECT_FALSE(is_some_on_switch());
}

TEST_F(PlannerSwitchTest, ABarrierIsCarriedAsOneByte) {
  run([](PlannedRank& rank) {
    Request request = rank.request(0, Collective::kBarrier);
    request.operation.input = request.operation.output = nullptr;
    request.operation.element_size = 1;
    return request;
  });
  EXPECT_TRUE(are_on_switch());
  for (const auto& rank : ranks_) {
    const Operation& carried = latest(*rank).slices[0].slice.operation;
    EXPECT_EQ(carried.bytes(), 1u);
    EXPECT_NE(carried.input, nullptr);
  }
}

TEST_F(PlannerSwitchTest, TheHostsGoOnWhileItIsLost) {
  const auto operations = start([](PlannedRank& rank) { return rank.request(kElements); });
  EXPECT_TRUE(are_on_switch());
  {
    const Progress::Guard guard(ranks_[1]->setup.progress());
    ranks_[1]->planner.lose_engine(ranks_[1]->engine);
    ranks_[1]->setup.progress().run_deferred();
  }
  finish(operations, /*works=*/false);
  expect_sums();
  run();
  expect_sums();
  EXPECT_FALSE(is_some_on_switch());
  for (const auto& rank : ranks_) {
    const Progress::Guard guard(rank->setup.progress());
    EXPECT_TRUE(rank->failures.empty());
    rank->planner.regain_engine(rank->engine);
    rank->setup.progress().run_deferred();
  }
  run_until([&] { return are_on_switch(); });
}

}  // namespace
}  // namespace nezha
