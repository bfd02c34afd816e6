// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/engine/stream_order.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace nezha::flare {
namespace {

using Choice = StreamLeader::Choice;

constexpr int kStreams = 4;
constexpr int kLast = kStreams - 1;

struct LeaderTest : ::testing::Test {
  LeaderTest() { leader.begin(); }
  // The stream of the next operation, which must be `name`; -1 if there is none.
  int next(const OperationId& name) {
    const std::optional<Choice> choice = leader.next();
    if (!choice) return -1;
    EXPECT_EQ(choice->name, name);
    return choice->stream;
  }
  void fill_all_but_the_last() {
    for (uint32_t tag = 100; tag < 100 + kLast; ++tag) {
      leader.add({tag, 1});
      EXPECT_EQ(next({tag, 1}), static_cast<int>(tag) - 100);
    }
  }
  StreamLeader leader{kStreams, 3};
};

TEST_F(LeaderTest, NothingGoesBeforeThereIsASession) {
  StreamLeader without(kStreams, 3);
  without.add({1, 1});
  EXPECT_FALSE(without.next());
}

TEST_F(LeaderTest, OperationsHaveAStreamEachInTheOrderOfTheirStarts) {
  leader.add({7, 1});
  leader.add({5, 1});
  EXPECT_EQ(next({7, 1}), 0);
  EXPECT_EQ(next({5, 1}), 1);
  EXPECT_FALSE(leader.next());
}

TEST_F(LeaderTest, TheLastStreamIsForWhatAllRanksHaveStarted) {
  fill_all_but_the_last();
  leader.add({1, 1});
  leader.add({2, 1});
  EXPECT_FALSE(leader.next());
  leader.on_started(1, {2, 1});
  EXPECT_FALSE(leader.next()) << "rank 2 has not started it";
  leader.on_started(2, {2, 1});
  EXPECT_EQ(next({2, 1}), kLast);
  leader.on_started(1, {1, 1});
  leader.on_started(2, {1, 1});
  EXPECT_FALSE(leader.next()) << "the last stream is busy";
  leader.free(kLast);
  EXPECT_EQ(next({1, 1}), kLast);
}

TEST_F(LeaderTest, OneStreamIsTheLast) {
  StreamLeader one(1, 2);
  one.begin();
  one.add({1, 1});
  EXPECT_FALSE(one.next());
  one.on_started(1, {1, 1});
  const std::optional<Choice> choice = one.next();
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->stream, 0);
  EXPECT_FALSE(choice->is_kept);
}

TEST_F(LeaderTest, AStreamThatIsFreeAgainGoesToTheOneThatWaitsLongest) {
  fill_all_but_the_last();
  leader.add({1, 1});
  leader.add({2, 1});
  leader.free(1);
  EXPECT_EQ(next({1, 1}), 1);
  EXPECT_FALSE(leader.next());
}

TEST_F(LeaderTest, WhatIsForgottenGetsNoStream) {
  fill_all_but_the_last();
  leader.add({1, 1});
  leader.add({2, 1});
  leader.forget({1, 1});
  leader.free(0);
  EXPECT_EQ(next({2, 1}), 0);
}

TEST_F(LeaderTest, TagsThatAreUsedOftenKeepAStreamButTwo) {
  int kept = 0;
  for (uint32_t tag = 1; tag <= 5; ++tag) {
    for (uint64_t ordinal = 1; ordinal <= 20; ++ordinal) {
      leader.add({tag, ordinal});
      const std::optional<Choice> choice = leader.next();
      ASSERT_TRUE(choice);
      if (choice->is_kept) {
        ++kept;
        break;  // later operations of this tag no longer ask
      }
      leader.free(choice->stream);
    }
  }
  EXPECT_EQ(kept, kStreams - 2);
}

TEST_F(LeaderTest, ALostSessionLeavesNothing) {
  fill_all_but_the_last();
  leader.add({1, 1});
  leader.on_started(1, {1, 1});
  leader.clear();
  leader.begin();
  EXPECT_FALSE(leader.next());
  leader.add({3, 1});
  EXPECT_EQ(next({3, 1}), 0);
}

TEST(Follower, AnOrderIsForOneOperation) {
  StreamFollower follower;
  EXPECT_EQ(follower.take({1, 1}), std::nullopt);
  follower.on_order({1, 1}, 2);
  EXPECT_EQ(follower.take({1, 2}), std::nullopt);
  EXPECT_EQ(follower.take({1, 1}), 2);
  EXPECT_EQ(follower.take({1, 1}), std::nullopt);
}

TEST(Follower, AStreamIsKeptFromAnOperationOn) {
  StreamFollower follower;
  follower.on_keep({1, 5}, 3);
  EXPECT_EQ(follower.take({1, 4}), std::nullopt);
  EXPECT_EQ(follower.take({1, 5}), 3);
  EXPECT_EQ(follower.take({1, 6}), 3);
  EXPECT_EQ(follower.take({2, 6}), std::nullopt);
  EXPECT_TRUE(follower.is_kept_for(1, 3));
  EXPECT_FALSE(follower.is_kept_for(1, 2));
  follower.on_order({1, 4}, 1);  // this order was sent earlier and arrives late
  EXPECT_EQ(follower.take({1, 4}), 1);
  follower.clear();
  EXPECT_EQ(follower.take({1, 6}), std::nullopt);
}

// Ranks with one thread per tag; each thread starts one operation after the other. Messages from
// rank 0 reach each rank in order, after a delay.
class Simulation {
 public:
  Simulation(unsigned seed, int ranks, int streams, int tags)
      : random_(seed), leader_(streams, ranks), ranks_(static_cast<size_t>(ranks)) {
    leader_.begin();
    for (SimulatedRank& rank : ranks_) {
      rank.carried.resize(static_cast<size_t>(streams));
      rank.next.assign(static_cast<size_t>(tags), 1);
      rank.is_running.assign(static_cast<size_t>(tags), false);
    }
  }

  // Runs the operations; returns whether all operations of all tags end.
  bool run(uint64_t operations) {
    for (int idle = 0; idle < 20'000; ++idle) {
      if (act(operations)) idle = 0;
      if (over_ == operations * ranks_.front().next.size()) return true;
    }
    return false;
  }
  void check_that_streams_carry_the_same() const {
    for (const SimulatedRank& rank : ranks_) EXPECT_EQ(rank.carried, ranks_.front().carried);
  }

 private:
  struct SimulatedRank {
    StreamFollower follower;
    std::vector<uint64_t> next;    // by tag: the ordinal to start
    std::vector<bool> is_running;  // by tag
    std::vector<OperationId> waiting;
    std::deque<Choice> news;                        // from rank 0
    std::vector<std::vector<OperationId>> carried;  // by stream
  };

  bool act(uint64_t operations) {
    const auto r = static_cast<size_t>(random_() % ranks_.size());
    SimulatedRank& rank = ranks_[r];
    if (r != 0 && random_() % 2 == 0 && !rank.news.empty()) {
      hear(rank);
      return true;
    }
    const auto tag = static_cast<uint32_t>(random_() % rank.next.size());
    if (rank.is_running[tag] || rank.next[tag] > operations) return false;
    start(r, {tag, rank.next[tag]++});
    return true;
  }
  void start(size_t r, const OperationId& name) {
    SimulatedRank& rank = ranks_[r];
    rank.is_running[name.tag] = true;
    rank.waiting.push_back(name);
    if (const auto stream = rank.follower.take(name)) return assign(rank, name, *stream);
    if (r != 0) {
      const bool is_over_there = ranks_[0].next[name.tag] > name.ordinal;
      const auto& waits = ranks_[0].waiting;
      const bool waits_there = std::find(waits.begin(), waits.end(), name) != waits.end();
      if (ranks_[0].follower.kept_stream(name) || (is_over_there && !waits_there)) return;
      leader_.on_started(static_cast<int>(r), name);
    } else {
      leader_.add(name);
    }
    lead();
  }
  void lead() {
    while (const auto choice = leader_.next()) {
      for (size_t r = 1; r < ranks_.size(); ++r) ranks_[r].news.push_back(*choice);
      follow(ranks_[0], *choice);
    }
  }
  void hear(SimulatedRank& rank) {
    const Choice choice = rank.news.front();
    rank.news.pop_front();
    follow(rank, choice);
  }
  void follow(SimulatedRank& rank, const Choice& choice) {
    const auto waits = [&](const OperationId& name) {
      return std::find(rank.waiting.begin(), rank.waiting.end(), name) != rank.waiting.end();
    };
    if (choice.is_kept) {
      rank.follower.on_keep(choice.name, choice.stream);
      const uint64_t last = rank.next[choice.name.tag] - 1;
      for (OperationId name = choice.name; name.ordinal <= last; ++name.ordinal) {
        if (waits(name)) assign(rank, name, choice.stream);
      }
    } else if (waits(choice.name)) {
      assign(rank, choice.name, choice.stream);
    } else {
      rank.follower.on_order(choice.name, choice.stream);
    }
  }
  // The operation is over once all ranks carry it.
  void assign(SimulatedRank& rank, const OperationId& name, int stream) {
    std::erase(rank.waiting, name);
    rank.carried[static_cast<size_t>(stream)].push_back(name);
    if (++carriers_[name] < ranks_.size()) return;
    ++over_;
    for (SimulatedRank& each : ranks_) each.is_running[name.tag] = false;
    leader_.forget(name);
    if (!ranks_[0].follower.is_kept_for(name.tag, stream)) leader_.free(stream);
    lead();
  }

  std::mt19937 random_;
  StreamLeader leader_;
  std::vector<SimulatedRank> ranks_;
  std::map<OperationId, size_t> carriers_;
  size_t over_ = 0;
};

TEST(StreamOrder, RanksThatStartInOrdersOfTheirOwnGoOnAndAgree) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed, 2 + static_cast<int>(seed % 4), 1 + static_cast<int>(seed % 5),
                          1 + static_cast<int>(seed % 9));
    ASSERT_TRUE(simulation.run(12)) << "it hangs";
    simulation.check_that_streams_carry_the_same();
  }
}

}  // namespace
}  // namespace nezha::flare
