// SPDX-License-Identifier: Apache-2.0
// Which algorithm the hosts engine chooses, and which peers a rank then has.
#include "collectives/hosts/choice.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <vector>

#include "collectives/hosts/hosts_engine.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/hosts/documented_order.h"

namespace nezha {
namespace {

Operation operation_of(size_t elements) {
  Operation op;
  op.elements = elements;
  op.element_size = 4;
  return op;
}

Algorithm chosen(Algorithm asked, int ranks, const Operation& operation) {
  const auto schedule = HostsEngine::choose(asked, ranks, operation);
  return schedule.ok() ? static_cast<Algorithm>(*schedule) : Algorithm::kAuto;
}

Algorithm chosen(int ranks, size_t elements) {
  return chosen(Algorithm::kAuto, ranks, operation_of(elements));
}

TEST(HostsEngine, ChoosesByRanksAndSize) {
  EXPECT_EQ(chosen(8, 16), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(8, (8 << 10) - 1), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(8, 8 << 10), Algorithm::kHalvingDoubling);
  EXPECT_EQ(chosen(8, (128 << 10) - 1), Algorithm::kHalvingDoubling);
  EXPECT_EQ(chosen(8, 128 << 10), Algorithm::kRing);
  EXPECT_EQ(chosen(7, (16 << 10) - 1), Algorithm::kHalvingDoubling);  // because folding sends more
  EXPECT_EQ(chosen(7, 16 << 10), Algorithm::kRing);
  EXPECT_EQ(chosen(2, 8 << 10), Algorithm::kHalvingDoubling);
  EXPECT_EQ(chosen(3, 8 << 10), Algorithm::kRing);
  EXPECT_EQ(chosen(6, 8 << 10), Algorithm::kRing);
  EXPECT_EQ(chosen(1000, 16), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(1000, 1 << 20), Algorithm::kHalvingDoubling);
  EXPECT_EQ(chosen(1024, 1 << 20), Algorithm::kHalvingDoubling);  // still not the ring
}

// At these sizes either of two algorithms may be faster, depending on the network.
TEST(HostsEngine, KnowsTheRivalOfWhatItChooses) {
  constexpr size_t kKiB = 1 << 10;
  EXPECT_EQ(rival(4, 4 * kKiB - 1), Algorithm::kAuto);
  EXPECT_EQ(rival(4, 4 * kKiB), Algorithm::kHalvingDoubling);
  EXPECT_EQ(rival(4, 32 * kKiB - 1), Algorithm::kHalvingDoubling);
  EXPECT_EQ(rival(4, 32 * kKiB), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(rival(4, 128 * kKiB - 1), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(rival(4, 128 * kKiB), Algorithm::kAuto);
  EXPECT_EQ(rival(6, 64 * kKiB), Algorithm::kAuto) << "six ranks use the ring here";
  for (const int ranks : {1, 2, 3}) EXPECT_EQ(rival(ranks, 16 * kKiB), Algorithm::kAuto);
  for (int ranks = 4; ranks < 40; ++ranks) {
    for (size_t bytes = 1; bytes < (1 << 20); bytes = bytes * 3 / 2 + 1) {
      const Algorithm other = rival(ranks, bytes);
      if (other == Algorithm::kAuto) continue;
      EXPECT_NE(other, best_algorithm(ranks, bytes, false)) << ranks << " ranks, " << bytes;
      EXPECT_TRUE(sums_over_tree(best_algorithm(ranks, bytes, false)));
      EXPECT_TRUE(sums_over_tree(other));
    }
  }
}

TEST(HostsEngine, KnowsWhichMessagesTakeTurns) {
  constexpr size_t kKiB = 1 << 10;
  EXPECT_FALSE(takes_turns(4 * kKiB - 1));
  EXPECT_TRUE(takes_turns(4 * kKiB));
  EXPECT_TRUE(takes_turns(64 * kKiB - 1));
  EXPECT_FALSE(takes_turns(64 * kKiB));
}

TEST(HostsEngine, EveryMessageHasATurnOfEachOfTwoRails) {
  constexpr uint64_t kSends = 2;
  int in_a_row = 0;
  std::array<std::set<uint64_t>, kSends> rails;
  for (uint64_t operation = 0; operation < 1000; ++operation) {
    const uint64_t turn = first_turn(operation, kSends);
    in_a_row += first_turn(operation + 1, kSends) == turn + kSends;
    for (uint64_t send = 0; send < kSends; ++send) rails[send].insert((turn + send) % 2);
  }
  EXPECT_GT(in_a_row, 950);
  for (const auto& taken : rails) EXPECT_EQ(taken.size(), 2u);
}

TEST(HostsEngine, RivalsHaveTheSamePeers) {
  const HostsEngine engine;
  for (int size = 1; size <= 33; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      Group group;
      group.rank = rank;
      group.size = size;
      EXPECT_EQ(engine.peers(group, {}, {ScheduleKind::kRecursiveDoubling, 0, 0}),
                engine.peers(group, {}, {ScheduleKind::kHalvingDoubling, 0, 0}));
    }
  }
}

std::vector<Operation> bound_to_the_tree(size_t elements) {
  std::vector<Operation> operations(2, operation_of(elements));
  operations[0].reproducible = true;
  operations[1].commutative = false;
  return operations;
}

TEST(HostsEngine, ChoosesAmongThoseThatSumOverTheTree) {
  for (int ranks = 1; ranks <= 33; ++ranks) {
    for (size_t elements = 0; elements < (16 << 20); elements = elements * 2 + 1) {
      for (const Operation& operation : bound_to_the_tree(elements)) {
        EXPECT_TRUE(sums_over_tree(chosen(Algorithm::kAuto, ranks, operation)))
            << ranks << " ranks, " << elements << " elements";
      }
    }
  }
}

TEST(HostsEngine, TakesWhatWasAskedFor) {
  for (const ScheduleKind schedule : kSchedules) {
    const auto asked = static_cast<Algorithm>(schedule);
    EXPECT_EQ(chosen(asked, 8, operation_of(1000)), asked);
    EXPECT_EQ(chosen(asked, 8, operation_of(0)), Algorithm::kRecursiveDoubling);
    for (const size_t elements : {0, 1000}) {
      for (const Operation& operation : bound_to_the_tree(elements)) {
        const auto choice = HostsEngine::choose(asked, 8, operation);
        EXPECT_EQ(choice.ok(), sums_over_tree(asked)) << choice.status();
        if (choice.ok() && elements > 0) {
          EXPECT_EQ(*choice, schedule);
        }
      }
    }
  }
}

TEST(HostsEngine, RefusesAnOrderThatTheOperationDoesNotAllow) {
  const Operation reproducible = bound_to_the_tree(10)[0];
  const absl::Status status = HostsEngine::choose(Algorithm::kRing, 4, reproducible).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  for (const char* part :
       {"ring", "reproducible", "recursive-doubling", "halving-doubling", "direct"}) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << part << ": " << status;
  }
}

TEST(HostsEngine, PeersAreMutual) {
  const HostsEngine engine;
  for (const ScheduleKind schedule : kSchedules) {
    for (int size = 1; size <= 33; ++size) {
      const auto peers = [&](int rank) {
        Group group;
        group.rank = rank;
        group.size = size;
        return engine.peers(group, {}, {schedule, 0, 0});
      };
      for (int rank = 0; rank < size; ++rank) {
        for (const int peer : peers(rank)) {
          ASSERT_NE(peer, rank);
          ASSERT_TRUE(peer >= 0 && peer < size);
          const auto back = peers(peer);
          ASSERT_NE(std::find(back.begin(), back.end(), rank), back.end());
        }
      }
    }
  }
}

}  // namespace
}  // namespace nezha
