// SPDX-License-Identifier: Apache-2.0
// The control planes of two ranks whose channels are joined by in-memory links.
#include "context/control_plane.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "control/table_file.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/fake_link.h"

namespace nezha {
namespace {

using testing::FakeNetwork;
using Id = std::pair<uint32_t, uint64_t>;  // tag, ordinal
using PlannedSplit = ControlPlane::PlannedSplit;

constexpr uint64_t kBytes = 100'000;
constexpr uint64_t kStreamTag = uint64_t{1} << 63;  // the stream of the control plane

// A rank that starts operations as a context does.
struct Rank final : ControlPlaneOwner {
  std::unique_ptr<ControlPlane> plane;
  std::map<Id, PlannedSplit> splits;  // of the operations that have started
  std::map<Id, uint64_t> held;        // bytes of the operations that are held
  std::set<Id> over;
  std::map<uint32_t, uint64_t> entered;  // the number of operations by tag
  std::vector<absl::Status> nonsense;
  std::vector<int> frozen;          // lanes
  std::vector<FrozenPart> reports;  // reported by the next freeze
  std::vector<uint32_t> epochs;
  std::vector<Repair> repairs;  // of the last epoch

  // Operations of different tags have different sizes.
  static uint64_t bytes(uint32_t tag) { return kBytes << tag; }

  void enter(uint32_t tag) { start({tag, ++entered[tag]}); }
  void start(const Id& id) {
    const auto split = plane->start({id.first, id.second}, bytes(id.first));
    if (split) {
      splits[id] = *split;
    } else {
      held[id] = bytes(id.first);
    }
  }
  void finish(const Id& id) {
    over.insert(id);
    const PlannedSplit& split = splits.at(id);
    plane->finish({id.first, id.second});
    LaneTimes times;
    for (const uint32_t part : split.allocation) times.push_back(part == 0 ? 0 : 1000);
    if (times.empty()) times = {1000, 0};  // without a plan the first lane carries everything
    plane->add({{id.first, id.second}, bytes(id.first), split.number, times});
  }

  bool has_started(const OperationId& operation) const override {
    return splits.contains({operation.tag, operation.ordinal});
  }
  void on_released() override {
    for (const auto& [id, bytes] : std::exchange(held, {})) start(id);
  }
  std::vector<FrozenPart> on_freeze(int lane) override {
    frozen.push_back(lane);
    return std::exchange(reports, {});
  }
  absl::Status on_recover(int lane, uint32_t epoch, const std::vector<Repair>& answer) override {
    EXPECT_EQ(lane, frozen.back());
    epochs.push_back(epoch);
    repairs = answer;
    return absl::OkStatus();
  }
  double rate(RailMask /*rails*/, bool /*also_tried*/) const override { return 0; }
  void on_failed(const absl::Status& why) override { nonsense.push_back(why); }
};

class ControlPlaneTest : public ::testing::Test {
 protected:
  ControlPlaneTest() {
    auto made = Progress::create();
    EXPECT_TRUE(made.ok());
    progress_ = *std::move(made);
    guard_ = std::make_unique<Progress::Guard>(*progress_);
  }
  ~ControlPlaneTest() override {
    stop();
    guard_.reset();
  }

  void stop() {
    stream_.reset();
    for (Rank& rank : ranks_) rank.plane.reset();
    network_.reset();
  }
  void make_network(uint64_t seed = 1) {
    stop();
    ranks_ = {};
    network_ = std::make_unique<FakeNetwork>(*progress_, seed, 2);
  }
  void make_plane(int rank, ControlPlane::Options options = {}) {
    options.rank = rank;
    options.size = 2;
    options.context = FakeNetwork::kJob.low;
    options.log = log_of_rank(rank, 2);
    options.policy = BalancePolicy::kShuffle;
    auto& plane = ranks_[static_cast<size_t>(rank)].plane;
    plane = std::make_unique<ControlPlane>(*progress_, ranks_[static_cast<size_t>(rank)],
                                           std::move(options));
    std::vector<std::string> engines;
    if (has_engine_) engines.emplace_back("switch");
    plane->set_lanes({"a", "b"}, {rail_bit(0), rail_bit(1)}, engines);
  }
  void connect(int rank) {
    ranks_[static_cast<size_t>(rank)].plane->connect(1 - rank, network_->channel(rank));
    network_->settle_down();
  }
  void make_both(uint64_t seed = 1, const ControlPlane::Options& options = {}) {
    make_network(seed);
    for (const int rank : {0, 1}) make_plane(rank, options);
    for (const int rank : {1, 0}) connect(rank);
  }
  // Makes one rank's plane, and a stream that plays the other rank.
  void make_one(int rank) {
    make_network();
    make_plane(rank);
    connect(rank);
    heard_.clear();
    stream_ = std::make_unique<MessageStream>(
        network_->channel(1 - rank), FakeNetwork::kJob.low, kStreamTag,
        MessageStream::Callbacks{.on_message =
                                     [this](const std::string& bytes) {
                                       auto message =
                                           control_message::decode(bytes, has_engine_ ? 3 : 2);
                                       ASSERT_TRUE(message.ok()) << message.status();
                                       heard_.push_back(*std::move(message));
                                     },
                                 .on_failed = [](const absl::Status&) {}});
    stream_->start();
    network_->settle_down();
  }
  void say(const control_message::Message& message) {
    stream_->send(control_message::encode(message));
    network_->settle_down();
  }
  // Lets real time pass until `holds` is true.
  void settle_until(const std::function<bool()>& holds) {
    const Nanos deadline = now() + 20 * kSecond;
    while (!holds()) {
      ASSERT_LT(now(), deadline);
      network_->settle_down();
      Waiter never;
      progress_->wait(*guard_, never, now() + 5 * kMillisecond);
    }
  }
  void leave(int rank) {
    stream_.reset();
    network_->channel(rank).leave(FakeNetwork::kJob);
  }
  // Each rank starts and ends operations in its own order while messages are in flight.
  void run(uint64_t operations_of_a_tag) {
    constexpr uint32_t kTags = 3;
    const auto is_done = [&](const Rank& rank) {
      return rank.over.size() == kTags * operations_of_a_tag;
    };
    for (int i = 0; !is_done(ranks_[0]) || !is_done(ranks_[1]); ++i) {
      ASSERT_LT(i, 1'000'000) << ranks_[0].plane->why_held();
      Rank& rank = ranks_[network_->below(2)];
      const auto tag = static_cast<uint32_t>(network_->below(kTags));
      if (network_->one_in(3)) {
        if (rank.entered[tag] < operations_of_a_tag) rank.enter(tag);
      } else if (network_->one_in(2)) {
        finish_one(rank);
      } else if (!network_->step() && rank.entered[tag] == operations_of_a_tag) {
        network_->settle_down();
      }
      progress_->run_deferred();
    }
    network_->settle_down();
  }
  void finish_one(Rank& rank) {
    for (const auto& [id, split] : rank.splits) {
      const bool is_over_everywhere =
          ranks_[0].splits.contains(id) && ranks_[1].splits.contains(id) && !rank.over.contains(id);
      if (is_over_everywhere) return rank.finish(id);
    }
  }
  // Checks that both ranks ran each operation alike. Returns the highest plan that they used.
  uint32_t plans() {
    uint32_t latest = 0;
    EXPECT_EQ(ranks_[0].splits.size(), ranks_[1].splits.size());
    for (const auto& [id, split] : ranks_[0].splits) {
      const PlannedSplit& other = ranks_[1].splits[id];
      EXPECT_EQ(split.plan, other.plan);
      EXPECT_EQ(split.number, other.number);
      EXPECT_EQ(split.allocation, other.allocation);
      EXPECT_EQ(split.algorithm, other.algorithm);
      latest = std::max(latest, split.plan);
    }
    for (const Rank& rank : ranks_) EXPECT_TRUE(rank.nonsense.empty()) << rank.nonsense[0];
    return latest;
  }
  void expect_nonsense(int rank, const char* why) {
    std::vector<absl::Status>& nonsense = ranks_[static_cast<size_t>(rank)].nonsense;
    ASSERT_EQ(nonsense.size(), 1u) << why;
    EXPECT_TRUE(absl::StrContains(nonsense[0].message(),
                                  absl::StrCat("rank ", 1 - rank, " does not follow the protocol")))
        << nonsense[0];
    EXPECT_TRUE(absl::StrContains(nonsense[0].message(), why)) << nonsense[0];
    nonsense.clear();
  }

  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Progress::Guard> guard_;  // held throughout, so that no other thread drives
  std::unique_ptr<FakeNetwork> network_;
  bool has_engine_ = false;  // adds one lane
  std::array<Rank, 2> ranks_;
  std::unique_ptr<MessageStream> stream_;
  std::vector<control_message::Message> heard_;
};

TEST_F(ControlPlaneTest, AllRanksRunEachOperationByTheSamePlan) {
  uint32_t count = 0;
  std::set<Algorithm> algorithms;
  ControlPlane::Options options;
  options.tries_algorithms = true;
  for (uint64_t seed = 0; seed < 10 && !HasFailure(); ++seed) {
    make_both(seed, options);
    run(80);
    count += plans();
    for (const auto& [id, split] : ranks_[0].splits) algorithms.insert(split.algorithm);
  }
  EXPECT_GT(count, 50u);
  EXPECT_EQ(algorithms.size(), 3u);
}

// Such operations would keep their class at the first allocation that is tried.
TEST_F(ControlPlaneTest, OperationsWithoutMeasurementsChangeNoPlan) {
  make_both();
  for (uint64_t ordinal = 1; ordinal <= 40; ++ordinal) {
    for (Rank& rank : ranks_) {
      rank.enter(1);
      rank.plane->finish({1, ordinal});
      rank.plane->add({{1, ordinal}, Rank::bytes(1), 0, {0, 0}});
    }
    network_->settle_down();
  }
  for (const Rank& rank : ranks_) {
    for (const auto& [id, split] : rank.splits) EXPECT_EQ(split.plan, 0u);
  }
}

TEST_F(ControlPlaneTest, NothingIsKnownUntilAllAreConnected) {
  make_network();
  for (const int rank : {0, 1}) make_plane(rank);
  connect(0);
  Rank& first = ranks_[0];
  first.enter(1);
  network_->settle_down();
  EXPECT_TRUE((first.splits[{1, 1}].allocation.empty()));
  first.enter(1);
  connect(1);
  EXPECT_EQ((first.splits[{1, 2}].plan), 0u);
  first.enter(1);
  first.finish({1, 3});  // opens the class
  network_->settle_down();
  first.enter(1);
  EXPECT_EQ((first.splits[{1, 4}].plan), 1u);
  EXPECT_EQ((first.splits[{1, 4}].number), 1u);
  EXPECT_EQ((first.splits[{1, 4}].allocation.size()), 2u);
  first.enter(0);  // a class without an allocation uses that of the nearest class
  EXPECT_EQ((first.splits[{0, 1}].number), 0u);
  EXPECT_EQ((first.splits[{0, 1}].allocation), (first.splits[{1, 4}].allocation));
}

// The best allocation for one size may be wrong for others, whose operations may never open a
// class.
TEST_F(ControlPlaneTest, AClassWithoutAnAllocationUsesStripes) {
  ControlPlane::Options options;
  options.has_stripes = true;
  make_both(1, options);
  for (Rank& rank : ranks_) rank.enter(1);
  ranks_[0].finish({1, 1});  // opens the class
  network_->settle_down();
  for (Rank& rank : ranks_) {
    rank.enter(1);
    EXPECT_FALSE((rank.splits[{1, 2}].allocation.empty()));
    rank.enter(0);
    EXPECT_TRUE((rank.splits[{0, 1}].allocation.empty()));
  }
}

TEST_F(ControlPlaneTest, ARailThatIsDownSomewhereIsUsedNowhere) {
  make_both();
  ranks_[1].plane->set_down(rail_bit(0));
  run(30);
  plans();
  for (Rank& rank : ranks_) {
    rank.enter(1);
    EXPECT_EQ((rank.splits[{1, 31}].allocation), all_on(1, 2));
  }
}

TEST_F(ControlPlaneTest, ARailThatComesBackIsUsedAgain) {
  make_both();
  run(10);
  ranks_[1].plane->set_down(rail_bit(0));
  network_->settle_down();
  ranks_[1].plane->set_down(0);
  network_->settle_down();
  run(60);
  EXPECT_GT(plans(), 3u);
  LaneSet used = 0;
  for (const auto& [id, split] : ranks_[0].splits) {
    if (id.second > 40) used |= lanes_of(split.allocation);
  }
  EXPECT_EQ(used, 0b11u);
}

TEST_F(ControlPlaneTest, WithOneRailInCommonThereIsNothingToBalance) {
  make_network();
  for (const int rank : {0, 1}) make_plane(rank);
  ranks_[1].plane->set_lanes({"a", "b"}, {rail_bit(0), 0});
  for (const int rank : {0, 1}) connect(rank);
  run(20);
  EXPECT_EQ(plans(), 0u);
}

// With one rail there is still a choice of algorithms, but not with two ranks.
TEST_F(ControlPlaneTest, OneRailIsPlannedOnlyWhereTwoAlgorithmsCompete) {
  make_network();
  ControlPlane::Options options;
  options.tries_algorithms = true;
  options.size = 4;
  ControlPlane plane(*progress_, ranks_[0], options);
  EXPECT_TRUE(plane.is_worthwhile(1, 16 << 10));
  EXPECT_FALSE(plane.is_worthwhile(1, 1 << 20));
  EXPECT_TRUE(plane.is_worthwhile(2, 1 << 20));
  options.has_stripes = true;
  ControlPlane alone(*progress_, ranks_[0], options);
  alone.set_lanes({"a"}, {rail_bit(0)});
  EXPECT_EQ(alone.lanes(), 1) << "stripes would be the same";
  alone.saw_named(1 << 20);
  EXPECT_TRUE(alone.is_worthwhile(1, 16 << 10)) << "there is one for that";
  alone.saw_named(8 << 10);
  EXPECT_FALSE(alone.is_worthwhile(1, 16 << 10)) << "operations name theirs";
  for (const int size : {2, 257}) {
    options.size = size;
    EXPECT_FALSE(ControlPlane(*progress_, ranks_[0], options).is_worthwhile(1, 16 << 10));
  }
}

// Measurements decide whether a second rail is used, for the longest messages, too.
TEST_F(ControlPlaneTest, AllButShortMessagesArePlanned) {
  ControlPlane::Options options;
  options.has_stripes = true;
  make_both(1, options);
  EXPECT_EQ(ranks_[0].plane->lanes(), 3);
  EXPECT_FALSE(ranks_[0].plane->covers(SizeRegimes::kPlanned - 1));
  for (const uint64_t bytes : {SizeRegimes::kPlanned, SizeRegimes::kWhole, size_t{1} << 30}) {
    EXPECT_TRUE(ranks_[0].plane->covers(bytes)) << bytes;
  }
}

TEST_F(ControlPlaneTest, ResumesFromTheSavedTable) {
  ControlPlane::Options options;
  options.table_path = "a file";
  make_both(1, options);
  run(40);
  const auto saved = ranks_[0].plane->learned();
  EXPECT_FALSE(ranks_[1].plane->learned().has_value());
  stop();
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(saved->lanes, (std::vector<std::string>{"a", "b"}));
  ASSERT_FALSE(saved->entries.empty());
  options.table_path.clear();
  options.table = *saved;
  make_both(1, options);
  for (const Rank& rank : ranks_) {
    for (const auto& [size_class, entry] : saved->entries) {
      if (entry.windows == 0) continue;
      EXPECT_EQ(rank.plane->table().entries.at(size_class).allocation, entry.allocation);
    }
  }
}

// ---- An engine that is lost --------------------------------------------------------------------

constexpr int kEngine = 2;  // lane

TEST_F(ControlPlaneTest, AnEngineThatIsLostIsTakenFromAllPlans) {
  has_engine_ = true;
  make_both();
  run(40);
  plans();
  const auto carries = [&](const Rank& rank, const Id& id) {
    const PlannedSplit& split = rank.splits.at(id);
    return split.allocation.size() > kEngine && split.allocation[kEngine] > 0 &&
           contains(split.engines, kEngine);
  };
  size_t carried = 0;
  for (const auto& [id, split] : ranks_[0].splits) {
    EXPECT_EQ(carries(ranks_[0], id), carries(ranks_[1], id));
    carried += carries(ranks_[0], id) ? 1 : 0;
  }
  EXPECT_GT(carried, 0u);

  ranks_[1].reports = {{{1, 40}, {}, {{0, 8}}}};
  ranks_[1].plane->lose_engine(kEngine);
  ranks_[0].plane->lose_engine(kEngine);  // both ranks report it, and it counts as one loss
  network_->settle_down();
  for (Rank& rank : ranks_) {
    EXPECT_EQ(rank.frozen, (std::vector<int>{kEngine}));
    EXPECT_EQ(rank.epochs, (std::vector<uint32_t>{1}));
    ASSERT_EQ(rank.repairs.size(), 1u);
    EXPECT_EQ(rank.repairs[0].operation, (OperationId{1, 40}));
    EXPECT_FALSE(rank.plane->is_recovering());
  }
  run(60);
  plans();
  for (const Rank& rank : ranks_) {
    for (const auto& [id, split] : rank.splits) {
      EXPECT_FALSE(id.second > 40 && carries(rank, id));
    }
  }

  ranks_[0].plane->regain_engine(kEngine);
  run(70);
  for (const auto& [id, split] : ranks_[0].splits) {
    EXPECT_FALSE(id.second > 40 && carries(ranks_[0], id)) << "rank 1 does not have it";
  }
  ranks_[1].plane->regain_engine(kEngine);
  run(140);
  plans();
  carried = 0;
  for (const auto& [id, split] : ranks_[0].splits) {
    EXPECT_EQ(carries(ranks_[0], id), carries(ranks_[1], id));
    if (id.second > 70) carried += carries(ranks_[0], id) ? 1 : 0;
  }
  EXPECT_GT(carried, 0u) << "it is used again";
}

TEST_F(ControlPlaneTest, WhatStartsWhileAnEngineIsRecoveredWaits) {
  has_engine_ = true;
  make_one(1);
  Rank& rank = ranks_[1];
  say(control_message::Prepare{1});
  const Allocation thirds = equal_parts(0b111, 3);
  say(control_message::Commit{1, 0b111, {{size_class_of(kBytes << 1), 1, thirds}}, {}});
  rank.enter(1);
  EXPECT_TRUE(contains((rank.splits[{1, 1}].engines), kEngine));
  EXPECT_EQ((rank.splits[{1, 1}].waits), 0u);
  heard_.clear();
  say(control_message::Freeze{1, kEngine});
  EXPECT_TRUE(absl::StrContains(rank.plane->why_frozen(), "rank 0"));
  ASSERT_EQ(heard_.size(), 2u);  // the lanes come first: later plans do not use this one
  EXPECT_EQ(std::get<control_message::Lanes>(heard_[0]).live, 0b011u);
  EXPECT_EQ(std::get<control_message::Frozen>(heard_[1]).epoch, 1u);
  rank.enter(1);
  EXPECT_FALSE(contains((rank.splits[{1, 2}].engines), kEngine));
  EXPECT_EQ((rank.splits[{1, 2}].waits), lane_bit(kEngine));
  say(control_message::Recover{1, {}});
  rank.enter(1);
  EXPECT_FALSE(contains((rank.splits[{1, 3}].engines), kEngine));
  EXPECT_EQ((rank.splits[{1, 3}].waits), 0u);
  EXPECT_TRUE(rank.nonsense.empty());
}

TEST_F(ControlPlaneTest, WithoutARankThereIsNoRecovery) {
  has_engine_ = true;
  make_one(0);
  say(control_message::Lanes{0b111});
  Rank& rank = ranks_[0];
  rank.plane->lose_engine(kEngine);
  network_->settle_down();
  EXPECT_TRUE(absl::StrContains(rank.plane->why_frozen(), "once rank 1 has answered"));
  leave(1);
  settle_until([&] { return !rank.nonsense.empty(); });
  EXPECT_TRUE(absl::IsUnavailable(rank.nonsense[0])) << rank.nonsense[0];
}

TEST_F(ControlPlaneTest, ARankRefusesInvalidRecoveryMessages) {
  has_engine_ = true;
  make_one(1);
  say(control_message::Recover{1, {}});
  expect_nonsense(1, "not the current recovery");
  say(control_message::Freeze{1, 0});
  expect_nonsense(1, "lane 0");
  say(control_message::Lost{kEngine});
  expect_nonsense(1, "not for rank 1");
  say(control_message::Freeze{1, kEngine});
  say(control_message::Freeze{2, kEngine});
  expect_nonsense(1, "during another recovery");
  say(control_message::Recover{2, {}});
  expect_nonsense(1, "in epoch 2");
}

// ---- A rank that is gone -----------------------------------------------------------------------

TEST_F(ControlPlaneTest, WhoWaitsForTheCoordinatorGoesOnWhenItLeaves) {
  make_one(1);
  say(control_message::Prepare{1});
  ASSERT_FALSE(heard_.empty());
  EXPECT_TRUE(std::holds_alternative<control_message::Report>(heard_.back()));
  Rank& rank = ranks_[1];
  rank.enter(1);
  EXPECT_EQ(rank.held.size(), 1u);
  EXPECT_TRUE(absl::StrContains(rank.plane->why_held(), "rank 0"));
  leave(0);
  settle_until([&] { return rank.held.empty(); });
  EXPECT_EQ((rank.splits[{1, 1}].plan), 0u);
  EXPECT_TRUE(rank.nonsense.empty());
}

TEST_F(ControlPlaneTest, TheCoordinatorGoesOnWithoutARankThatLeaves) {
  make_one(0);
  say(control_message::Lanes{0b11});
  Rank& rank = ranks_[0];
  rank.enter(1);
  rank.finish({1, 1});  // opens the class
  network_->settle_down();
  rank.enter(1);
  EXPECT_EQ(rank.held.size(), 1u);
  EXPECT_TRUE(absl::StrContains(rank.plane->why_held(), "once rank 1 has answered"))
      << rank.plane->why_held();
  leave(1);
  settle_until([&] { return rank.held.empty(); });
  EXPECT_EQ((rank.splits[{1, 2}].plan), 1u);
  EXPECT_TRUE(rank.nonsense.empty());
}

// ---- What cannot be ----------------------------------------------------------------------------

TEST_F(ControlPlaneTest, TheCoordinatorRefusesInvalidMessages) {
  make_one(0);
  say(control_message::Lanes{0b11});
  stream_->send("what");
  network_->settle_down();
  expect_nonsense(0, "malformed");
  say(control_message::Prepare{1});
  expect_nonsense(0, "not for rank 0");
  say(control_message::Commit{1, 0, {}, {}});
  expect_nonsense(0, "not for rank 0");
  say(control_message::Report{1, {}});
  expect_nonsense(0, "not asked for");
  const Reading reading{{1, 1}, kBytes, 1, {5, 5}};
  say(control_message::Readings{{reading, reading}});
  expect_nonsense(0, "came twice");
}

// A rank reports all of the first operations after a change, because they may end a search's first
// window at once. If the times of an allocation are known, it reports a sample.
TEST_F(ControlPlaneTest, ARankTellsOfSamplesOfShortOperationsAfterAProbe) {
  make_one(1);
  uint32_t plan = 0;
  const auto change = [&](bool is_return) {
    ++plan;
    say(control_message::Prepare{plan});
    say(control_message::Commit{
        plan, 0, {{12, plan, all_on(0, 2), Algorithm::kAuto, is_return}}, {}});
    heard_.clear();
  };
  uint64_t ordinal = 0;
  const auto told_of = [&](int operations, uint32_t number) {
    for (int i = 0; i < operations; ++i)
      ranks_[1].plane->add({{0, ++ordinal}, 4096, number, {1000, 0}});
    network_->settle_down();
    size_t told = 0;
    for (const control_message::Message& message : std::exchange(heard_, {}))
      told += std::get<control_message::Readings>(message).readings.size();
    return told;
  };
  change(false);
  EXPECT_EQ(told_of(2, plan), 0) << "they wait for more";
  EXPECT_EQ(told_of(1, plan), 3);
  EXPECT_EQ(told_of(7, plan), 7);
  EXPECT_EQ(told_of(180, plan), 180);
  change(true);
  EXPECT_NEAR(static_cast<double>(told_of(8192, plan)), 1024, 200);
  for (uint64_t way = 0; way < 16; ++way) {  // a program that repeats itself
    ordinal = way * 16;
    size_t told = 0;
    for (int i = 0; i < 200; ++i, ordinal += 127) told += told_of(1, plan);
    EXPECT_GT(told, 0U) << way;
  }
  change(false);
  EXPECT_GE(told_of(30, plan), 30);
}

TEST_F(ControlPlaneTest, ARankRefusesInvalidMessagesFromTheCoordinator) {
  make_one(1);
  say(control_message::Lanes{0b11});
  expect_nonsense(1, "not for rank 1");
  say(control_message::Readings{});
  expect_nonsense(1, "not for rank 1");
  say(control_message::Commit{1, 0, {}, {}});
  expect_nonsense(1, "in no step");
  say(control_message::Prepare{2});
  expect_nonsense(1, "plan 2");
  say(control_message::Prepare{1});
  EXPECT_TRUE(ranks_[1].nonsense.empty());
  say(control_message::Prepare{1});
  expect_nonsense(1, "in a step");
}

}  // namespace
}  // namespace nezha
