// SPDX-License-Identifier: Apache-2.0
#include "control/plan_agreement.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "control/control_message.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

using control_message::Commit;
using control_message::Prepare;

// A rank that starts the operations of a few tags, those of each tag in order.
struct Rank {
  PlanFollower follower;
  std::deque<std::variant<Prepare, Commit>> inbox;
  std::map<uint32_t, uint64_t> entered;  // operations, by tag
  std::vector<OperationId> held;
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> plans;  // of operations started, by name
  std::map<std::pair<uint32_t, uint64_t>, bool> over;
};

// Ranks, their coordinator and the messages between them. Events occur in a random order.
class Simulation {
 public:
  static constexpr uint32_t kTags = 4;
  static constexpr uint64_t kEach = 60;

  Simulation(int ranks, uint32_t seed)
      : random_(seed), coordinator_(ranks), ranks_(static_cast<size_t>(ranks)) {}

  void run() {
    while (!done()) {
      Rank& rank = ranks_[random_() % ranks_.size()];
      switch (random_() % 8) {
        case 0:
          propose();
          break;
        case 1:
        case 2:
        case 3:
          enter(rank);
          break;
        case 4:
        case 5:
          finish(rank);
          break;
        default:
          receive(rank);
      }
      if (testing::Test::HasFailure()) return;
    }
  }
  uint32_t plans() const { return ranks_[0].follower.current(); }

 private:
  bool done() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
      return rank.over.size() == kTags * kEach && rank.inbox.empty();
    });
  }

  void propose() {
    if (coordinator_.is_stepping()) return;
    const uint32_t plan = coordinator_.begin();
    for (Rank& rank : ranks_) rank.inbox.emplace_back(Prepare{plan});
  }

  void enter(Rank& rank) {
    const uint32_t tag = random_() % kTags;
    if (rank.entered[tag] == kEach) return;
    start(rank, {tag, ++rank.entered[tag]});
  }

  void start(Rank& rank, const OperationId& id) {
    const auto plan = rank.follower.start(id);
    if (!plan) return rank.held.push_back(id);
    rank.plans[{id.tag, id.ordinal}] = *plan;
    for (const Rank& other : ranks_) {
      const auto theirs = other.plans.find({id.tag, id.ordinal});
      if (theirs != other.plans.end()) {
        ASSERT_EQ(theirs->second, *plan);
      }
    }
  }

  void finish(Rank& rank) {
    for (const auto& [id, plan] : rank.plans) {
      if (rank.over.contains(id)) continue;
      if (std::any_of(ranks_.begin(), ranks_.end(),
                      [&id = id](const Rank& other) { return !other.plans.contains(id); })) {
        continue;
      }
      rank.over[id] = true;
      return rank.follower.finish({id.first, id.second});
    }
  }

  void receive(Rank& rank) {
    if (rank.inbox.empty()) return;
    const auto message = rank.inbox.front();
    rank.inbox.pop_front();
    if (const auto* prepare = std::get_if<Prepare>(&message)) {
      const auto report = rank.follower.prepare(prepare->plan);
      ASSERT_TRUE(report.ok()) << report.status();
      const auto commit =
          coordinator_.report(static_cast<int>(&rank - ranks_.data()), prepare->plan, *report);
      ASSERT_TRUE(commit.ok()) << commit.status();
      if (!*commit) return;
      for (Rank& each : ranks_) each.inbox.emplace_back(Commit{prepare->plan, 0, {}, **commit});
    } else {
      const auto& commit = std::get<Commit>(message);
      const absl::Status status =
          rank.follower.commit(commit.plan, commit.keep, [&](const OperationId& id) {
            const auto entered = rank.entered.find(id.tag);
            return entered != rank.entered.end() && entered->second >= id.ordinal;
          });
      ASSERT_TRUE(status.ok()) << status;
      for (const OperationId& id : std::exchange(rank.held, {})) start(rank, id);
    }
  }

  std::mt19937 random_;
  PlanCoordinator coordinator_;
  std::vector<Rank> ranks_;
};

TEST(PlanAgreement, AllRanksRunEachOperationByTheSamePlan) {
  uint32_t plans = 0;
  for (uint32_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
    Simulation simulation(2 + static_cast<int>(seed % 4), seed);
    simulation.run();
    plans += simulation.plans();
  }
  EXPECT_GT(plans, 500u);
}

constexpr auto kEnteredNothing = [](const OperationId&) { return false; };

TEST(PlanFollower, RunsByTheCurrentPlanUntilAStepBegins) {
  PlanFollower follower;
  EXPECT_EQ(follower.start({1, 1}), 0u);
  EXPECT_EQ(*follower.prepare(1), (std::vector<OperationId>{{1, 1}}));
  EXPECT_EQ(follower.start({1, 2}), std::nullopt);
  EXPECT_TRUE(
      follower.commit(1, {{1, 1}, {2, 1}}, [](const OperationId& id) { return id.tag == 1; }).ok());
  EXPECT_EQ(follower.start({1, 2}), 1u);
  EXPECT_EQ(follower.start({2, 1}), 0u) << "another rank has started it by the old plan";
  EXPECT_EQ(follower.start({2, 2}), 1u);
}

TEST(PlanFollower, KeepsWhatAnEarlierStepNamed) {
  PlanFollower follower;
  for (const uint32_t plan : {1u, 2u}) {
    ASSERT_TRUE(follower.prepare(plan).ok());
    ASSERT_TRUE(follower.commit(plan, {{plan, 1}}, kEnteredNothing).ok());
  }
  EXPECT_EQ(follower.start({1, 1}), 0u);
  EXPECT_EQ(follower.start({2, 1}), 1u);
  EXPECT_EQ(follower.start({3, 1}), 2u);
}

TEST(PlanFollower, ReportsNothingThatIsOver) {
  PlanFollower follower;
  follower.start({1, 1});
  follower.finish({1, 1});
  EXPECT_TRUE(follower.prepare(1)->empty());
}

TEST(PlanFollower, AHeldOperationKeepsTheOldPlanIfAnotherRankHasStartedIt) {
  PlanFollower follower;
  ASSERT_TRUE(follower.prepare(1).ok());
  for (const uint64_t ordinal : {1, 2, 3}) EXPECT_FALSE(follower.start({1, ordinal}));
  follower.finish({1, 3});  // given up
  ASSERT_TRUE(follower.commit(1, {{1, 1}}, [](const OperationId&) { return true; }).ok());
  EXPECT_EQ(follower.start({1, 1}), 0u);
  EXPECT_EQ(follower.start({1, 2}), 1u);
}

TEST(PlanFollower, TheOldestPlanIsTheOldestThatAnOperationKeeps) {
  PlanFollower follower;
  EXPECT_EQ(follower.oldest(), 0u);
  for (const uint32_t plan : {1u, 2u, 3u}) {
    ASSERT_TRUE(follower.prepare(plan).ok());
    const std::vector<OperationId> keep =
        plan == 3 ? std::vector<OperationId>{} : std::vector<OperationId>{{plan, 1}};
    ASSERT_TRUE(follower.commit(plan, keep, kEnteredNothing).ok());
    EXPECT_EQ(follower.oldest(), 0u);
  }
  follower.start({1, 1});
  EXPECT_EQ(follower.oldest(), 1u);
  follower.start({2, 1});
  EXPECT_EQ(follower.oldest(), 3u);
}

TEST(PlanFollower, WhatThisRankHasStartedItselfKeepsNoPlan) {
  PlanFollower follower;
  follower.start({1, 1});
  ASSERT_TRUE(follower.prepare(1).ok());
  ASSERT_TRUE(follower.commit(1, {{1, 1}}, [](const OperationId&) { return true; }).ok());
  EXPECT_EQ(follower.oldest(), 1u);
}

TEST(PlanFollower, AHeldOperationThatHasStartedKeepsNoPlan) {
  PlanFollower follower;
  ASSERT_TRUE(follower.prepare(1).ok());
  EXPECT_FALSE(follower.start({1, 1}));
  ASSERT_TRUE(follower.commit(1, {}, kEnteredNothing).ok());
  EXPECT_EQ(follower.start({1, 1}), 1u);
  ASSERT_TRUE(follower.prepare(2).ok());
  ASSERT_TRUE(follower.commit(2, {{1, 1}}, [](const OperationId&) { return true; }).ok());
  EXPECT_EQ(follower.oldest(), 2u);
}

TEST(PlanFollower, ReportsEachOperationToOneStep) {
  PlanFollower follower;
  follower.start({1, 1});
  EXPECT_EQ(follower.prepare(1)->size(), 1u);
  ASSERT_TRUE(follower.commit(1, {{1, 1}}, [](const OperationId&) { return true; }).ok());
  EXPECT_TRUE(follower.prepare(2)->empty());
}

TEST(PlanFollower, KeepsABoundedAmount) {
  PlanFollower follower;
  ASSERT_TRUE(follower.prepare(1).ok());
  EXPECT_FALSE(follower.commit(1, std::vector<OperationId>((1 << 20) + 1), kEnteredNothing).ok());
}

TEST(PlanFollower, GoesOnByItsPlanWhenAStepIsGivenUp) {
  PlanFollower follower;
  ASSERT_TRUE(follower.prepare(1).ok());
  EXPECT_FALSE(follower.start({1, 1}));
  follower.give_up_step();
  EXPECT_FALSE(follower.is_waiting());
  EXPECT_FALSE(follower.commit(1, {}, kEnteredNothing).ok()) << "in no step";
  EXPECT_EQ(follower.start({1, 1}), 0u);
  EXPECT_EQ(*follower.prepare(1), (std::vector<OperationId>{{1, 1}}));
}

TEST(PlanFollower, RefusesStepsOutOfOrder) {
  PlanFollower follower;
  EXPECT_FALSE(follower.commit(1, {}, kEnteredNothing).ok()) << "in no step";
  EXPECT_FALSE(follower.prepare(2).ok());
  ASSERT_TRUE(follower.prepare(1).ok());
  EXPECT_FALSE(follower.prepare(1).ok()) << "in a step";
  EXPECT_FALSE(follower.commit(2, {}, kEnteredNothing).ok());
  EXPECT_TRUE(follower.commit(1, {}, kEnteredNothing).ok());
  EXPECT_EQ(follower.current(), 1u);
}

TEST(PlanCoordinator, CommitsWhatAnyRankReportsOnceAllHave) {
  PlanCoordinator coordinator(3);
  EXPECT_TRUE(coordinator.missing().empty());
  const uint32_t plan = coordinator.begin();
  EXPECT_FALSE((*coordinator.report(0, plan, {{1, 1}})).has_value());
  EXPECT_FALSE((*coordinator.report(2, plan, {{1, 1}, {5, 2}})).has_value());
  EXPECT_EQ(coordinator.missing(), (std::vector<int>{1}));
  const auto commit = *coordinator.report(1, plan, {});
  ASSERT_TRUE(commit.has_value());
  EXPECT_EQ(commit->size(), 2u);
  EXPECT_FALSE(coordinator.is_stepping());
}

TEST(PlanCoordinator, RefusesReportsThatWereNotAskedFor) {
  PlanCoordinator coordinator(2);
  EXPECT_FALSE(coordinator.report(0, 0, {}).ok()) << "no step";
  const uint32_t plan = coordinator.begin();
  EXPECT_FALSE(coordinator.report(2, plan, {}).ok());
  EXPECT_FALSE(coordinator.report(-1, plan, {}).ok());
  EXPECT_FALSE(coordinator.report(0, plan + 1, {}).ok());
  EXPECT_TRUE(coordinator.report(0, plan, {}).ok());
  EXPECT_FALSE(coordinator.report(0, plan, {}).ok()) << "twice";
}

}  // namespace
}  // namespace nezha
