// SPDX-License-Identifier: Apache-2.0
// Reduce, broadcast and barrier of the hosts engine, over loopback.
#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/hosts/hosts_engine.h"
#include "collectives/signature.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/hosts/parts.h"
#include "tests/unit/collectives/hosts/world.h"
#include "tests/unit/collectives/reference.h"

namespace nezha {
namespace {

constexpr auto kChain = ScheduleKind::kChain;

// The value of an element in the order that each algorithm documents.
template <typename T>
using Combine = std::function<T(T, T)>;

// course.h: around the ring, beginning with the root's right neighbour.
template <typename T>
T by_chain(const Combine<T>& combine, const std::vector<T>& operands, size_t root) {
  const size_t n = operands.size();
  T sum = operands[(root + 1) % n];
  for (size_t i = 2; i <= n; ++i) sum = combine(sum, operands[(root + i) % n]);
  return sum;
}

// tree.h: the sum over `count` ranks, of which the first is the top of a part of the tree.
template <typename T>
T by_tree(const Combine<T>& combine, const std::vector<T>& operands, size_t first, size_t count) {
  T sum = operands[first];
  for (size_t bit = 1; bit < count; bit *= 2) {
    sum = combine(sum, by_tree(combine, operands, first + bit, std::min(bit, count - bit)));
  }
  return sum;
}

template <typename T>
std::vector<T> expected(ScheduleKind schedule, const Work& work, int size) {
  std::vector<T> result(work.elements);
  const auto n = static_cast<size_t>(size);
  const auto root = static_cast<size_t>(work.root);
  const auto operation = work.function == nullptr ? work.operation : ReduceOperation::kSum;
  const Combine<T> combine = [&](T a, T b) { return reference::combine(operation, a, b); };
  std::vector<T> operands(n);
  for (size_t i = 0; i < work.elements; ++i) {
    if (work.collective == Collective::kBroadcast) {
      result[i] = input<T>(work.root, i, work.tag);
      continue;
    }
    for (int r = 0; r < size; ++r) operands[static_cast<size_t>(r)] = input<T>(r, i, work.tag);
    if (schedule == ScheduleKind::kTree)
      std::rotate(operands.begin(), operands.begin() + work.root, operands.end());
    result[i] = schedule == kChain                  ? by_chain(combine, operands, root)
                : schedule == ScheduleKind::kDirect ? over_tree(operation, operands)
                                                    : by_tree(combine, operands, 0, n);
    if (operation == ReduceOperation::kAverage) result[i] = reference::divide(result[i], size);
  }
  return result;
}

template <typename T = float>
void run(Rank& rank, ScheduleKind schedule, const Work& work,
         const std::vector<Lane>& lanes = {kWhole}) {
  SCOPED_TRACE(absl::StrCat(collective_name(work.collective, static_cast<uint64_t>(work.root)),
                            " by ", schedule_name(schedule), ", ", work.elements, " elements of ",
                            nameOf(dataTypeOf<T>()), ", ", nameOf(work.operation), ", rank ",
                            rank.group.rank, work.in_place ? ", in place" : ""));
  Progress& progress = rank.endpoint->progress();
  RankRun<T> part(rank, schedule, work, lanes);
  {
    Progress::Guard guard(progress);
    part.start();
    EXPECT_TRUE(progress.wait(guard, part.waiter, now() + 60 * kSecond)) << "it hangs";
    part.freeze();
    progress.run_deferred();
  }
  ASSERT_TRUE(part.status.ok()) << part.status;
  EXPECT_TRUE(part.input_is_intact());
  if (!part.has_result()) return;
  const std::vector<T> wanted = expected<T>(schedule, work, rank.group.size);
  const size_t first = reference::first_difference(part.result(), wanted);
  ASSERT_EQ(first, work.elements) << "element " << first;
}

using Way = std::pair<Collective, ScheduleKind>;
const Way kRootedWays[] = {{Collective::kBroadcast, ScheduleKind::kTree},
                           {Collective::kBroadcast, kChain},
                           {Collective::kReduce, ScheduleKind::kTree},
                           {Collective::kReduce, ScheduleKind::kOrderedTree},
                           {Collective::kReduce, kChain},
                           {Collective::kReduce, ScheduleKind::kDirect}};

// A chain over zero elements waits for nobody, and the engine does not choose it.
size_t least_elements(ScheduleKind schedule) { return schedule == kChain ? 1 : 0; }

// The engine keeps the last schedule. A broadcast and a reduce use the same tree in opposite
// directions, so neither may use the other's schedule.
TEST(HostsEngine, AReduceAfterABroadcastHasAScheduleOfItsOwn) {
  World world(4);
  on_all_ranks(world, [](Rank& rank) {
    uint32_t tag = 0;
    for (const Collective collective :
         {Collective::kBroadcast, Collective::kReduce, Collective::kBroadcast}) {
      run(rank, ScheduleKind::kTree, {.elements = 1000, .tag = ++tag, .collective = collective});
    }
  });
}

class RootedTest : public ::testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  Way way() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
  // Calls `f` on each rank for each root, or for some roots if there are many ranks.
  void for_each_root(const std::function<void(Rank&, Work)>& f) const {
    std::vector<int> roots = {0, 1, size() / 2, size() - 1};
    if (size() <= 4) {
      roots.resize(static_cast<size_t>(size()));
      std::iota(roots.begin(), roots.end(), 0);
    }
    World world(size());
    on_all_ranks(world, [&](Rank& rank) {
      for (const int root : roots) {
        f(rank, {.tag = static_cast<uint32_t>(root), .collective = way().first, .root = root});
        if (::testing::Test::HasFailure()) return;
      }
    });
  }
};

TEST_P(RootedTest, HasTheBitsOfTheDocumentedOrder) {
  for_each_root([this](Rank& rank, Work work) {
    for (const size_t elements : {size_t{0}, size_t{1}, size_t{16}, size_t{1001}, size_t{20'009}}) {
      if (elements < least_elements(way().second)) continue;
      work.elements = elements;
      work.in_place = (elements + static_cast<size_t>(work.root)) % 2 == 0;
      run(rank, way().second, work);
    }
  });
}

TEST_P(RootedTest, SlicesDoNotChangeTheBits) {
  for_each_root([this](Rank& rank, Work work) {
    constexpr uint32_t kCut = 300'001;
    const std::vector<Lane> lanes{{{0, kCut}, rail_bit(0)},
                                  {{kCut, SliceBounds::kWhole}, rail_bit(1)}};
    for (const size_t elements : {size_t{5}, size_t{3011}}) {
      work.elements = elements;
      work.in_place = elements == 5;
      run(rank, way().second, work, lanes);
    }
  });
}

template <typename T>
void run_each(Rank& rank, ScheduleKind schedule, Work work) {
  for (const ReduceOperation operation :
       {ReduceOperation::kSum, ReduceOperation::kProduct, ReduceOperation::kMin,
        ReduceOperation::kMax, ReduceOperation::kAverage}) {
    work.operation = operation;
    work.in_place = !work.in_place;
    run<T>(rank, schedule, work);
    if (work.collective == Collective::kBroadcast || ::testing::Test::HasFailure()) return;
  }
}

TEST_P(RootedTest, OtherTypesAndOperations) {
  for_each_root([this](Rank& rank, Work work) {
    work.elements = 1003;
    run_each<int8_t>(rank, way().second, work);
    run_each<Float16>(rank, way().second, work);
    run_each<BFloat16>(rank, way().second, work);
    run_each<uint64_t>(rank, way().second, work);
    run_each<double>(rank, way().second, work);
  });
}

std::string name_of_way(const ::testing::TestParamInfo<std::tuple<Way, int>>& info) {
  const auto& [way, size] = info.param;
  std::string name = absl::StrCat(way.first == Collective::kReduce ? "reduce" : "broadcast", " by ",
                                  schedule_name(way.second));
  std::erase_if(name, [](char c) { return !std::isalpha(c); });
  return absl::StrCat(name, "_", size);
}

INSTANTIATE_TEST_SUITE_P(, RootedTest,
                         ::testing::Combine(::testing::ValuesIn(kRootedWays),
                                            ::testing::ValuesIn(kSizes)),
                         name_of_way);

// Large enough for the chain's window and for several rounds of the other algorithms.
TEST(Rooted, Megabytes) {
  for (const int size : {2, 3, 4}) {
    World world(size);
    on_all_ranks(world, [](Rank& rank) {
      uint32_t tag = 0;
      for (const auto& [collective, schedule] : kRootedWays) {
        const int root = static_cast<int>(++tag) % rank.group.size;
        const size_t elements = schedule == kChain ? (5 << 20) + 1 : (1 << 20) + 7;
        run(rank, schedule,
            {.elements = elements, .tag = tag, .collective = collective, .root = root});
      }
    });
  }
}

TEST(Rooted, OperandsStayInTheOrderOfRanks) {
  const ReduceFunction function = [](void* out, const void* a, const void* b, size_t elements) {
    for (size_t i = 0; i < elements; ++i) {
      static_cast<uint64_t*>(out)[i] =
          compose(static_cast<const uint64_t*>(a)[i], static_cast<const uint64_t*>(b)[i]);
    }
  };
  for (const int size : {2, 3, 5, 8}) {
    World world(size);
    on_all_ranks(world, [&](Rank& rank) {
      for (const ScheduleKind schedule : {ScheduleKind::kOrderedTree, ScheduleKind::kDirect}) {
        for (int root = 0; root < size; ++root) {
          const Work work{.elements = 1003,
                          .tag = static_cast<uint32_t>(root),
                          .in_place = root % 2 == 0,
                          .operation = ReduceOperation::kCustom,
                          .function = &function,
                          .collective = Collective::kReduce,
                          .root = root};
          RankRun<uint64_t> part(rank, schedule, work, {kWhole});
          Progress& progress = rank.endpoint->progress();
          Progress::Guard guard(progress);
          part.start();
          EXPECT_TRUE(progress.wait(guard, part.waiter, now() + 60 * kSecond)) << "it hangs";
          part.freeze();
          progress.run_deferred();
          ASSERT_TRUE(part.status.ok()) << part.status;
          for (size_t i = 0; part.has_result() && i < work.elements; ++i) {
            auto wanted = input<uint64_t>(0, i, work.tag);
            for (int r = 1; r < size; ++r) {
              wanted = compose(wanted, input<uint64_t>(r, i, work.tag));
            }
            ASSERT_EQ(part.result()[i], wanted) << "element " << i << ", root " << root;
          }
        }
      }
    });
  }
}

TEST(Barrier, NoRankLeavesBeforeTheLastHasCome) {
  for (int size = 2; size <= 9; ++size) {
    World world(size);
    for (int last = 0; last < size; ++last) {
      Parts parts(world);
      const Work work{.tag = static_cast<uint32_t>(last), .collective = Collective::kBarrier};
      for (int r = 0; r < size; ++r) {
        if (r != last) parts.start(r, ScheduleKind::kDissemination, work);
      }
      for (int r = 0; r < size; ++r) {
        if (r == last) continue;
        EXPECT_FALSE(parts.is_over(r, 3 * kMillisecond)) << r << " of " << size;
      }
      parts.start(last, ScheduleKind::kDissemination, work);
      for (int r = 0; r < size; ++r) EXPECT_TRUE(parts.is_over(r)) << r << " of " << size;
    }
  }
}

// Ranks that disagree must not all succeed silently; an error names the other rank and both calls.
void check_disagreement(int size, int odd_one, std::pair<ScheduleKind, Work> its,
                        std::pair<ScheduleKind, Work> others,
                        const std::vector<std::string>& named) {
  SCOPED_TRACE(absl::StrCat(named[0], " at rank ", odd_one, " of ", size, ", else ", named[1]));
  World world(size);
  Parts parts(world);
  std::vector<RankRun<>*> all;
  for (int r = 0; r < size; ++r) {
    const auto& [schedule, work] = r == odd_one ? its : others;
    all.push_back(&parts.start(r, schedule, work));
  }
  // The right neighbour of the odd rank learns of it at once.
  const int right = (odd_one + 1) % size;
  ASSERT_TRUE(parts.is_over(right));
  const absl::Status status = all[static_cast<size_t>(right)]->status;
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  for (const std::string& what : named) {
    EXPECT_NE(status.message().find(what), absl::string_view::npos) << what << ": " << status;
  }
}

TEST(Rooted, RanksThatDisagreeAreTold) {
  const auto work = [](Collective collective, int root, size_t elements) {
    return Work{.elements = elements, .tag = 1, .collective = collective, .root = root};
  };
  for (const int size : {2, 4, 5}) {
    for (int odd_one = 0; odd_one < size; ++odd_one) {
      for (const auto& [collective, schedule] : kRootedWays) {
        const bool is_reduce = collective == Collective::kReduce;
        const size_t elements = schedule == kChain ? 100'000 : 100;
        const std::string name = is_reduce ? "reduce to rank " : "broadcast from rank ";
        check_disagreement(size, odd_one, {schedule, work(collective, 1, elements)},
                           {schedule, work(collective, 0, elements)},
                           {absl::StrCat(name, 1), absl::StrCat(name, 0)});
        check_disagreement(
            size, odd_one, {ScheduleKind::kDissemination, work(Collective::kBarrier, 0, 0)},
            {schedule, work(collective, 1, elements)}, {"barrier", absl::StrCat(name, 1)});
      }
    }
  }
}

TEST(Rooted, ADeadRankFailsTheOthersTask) {
  for (const auto& [collective, schedule] : kRootedWays) {
    for (const size_t elements : {size_t{10}, size_t{200'000}}) {
      World world(3);
      const Work work{.elements = elements, .tag = 1, .collective = collective, .root = 1};
      on_all_ranks(world, [&, schedule = schedule](Rank& rank) { run(rank, schedule, work); });
      world.kill(2);
      Rank& rank = world.rank(0);  // the right neighbour of rank 2
      Progress& progress = rank.endpoint->progress();
      RankRun part(rank, schedule, work, {kWhole});
      Progress::Guard guard(progress);
      part.start();
      EXPECT_TRUE(progress.wait(guard, part.waiter, now() + 60 * kSecond));
      part.freeze();
      progress.run_deferred();
      EXPECT_TRUE(absl::IsUnavailable(part.status)) << part.status;
      EXPECT_NE(part.status.message().find("rank 2"), absl::string_view::npos) << part.status;
    }
  }
}

TEST(Rooted, AFunctionThatThrowsFailsTheTask) {
  const ReduceFunction throws = [](void*, const void*, const void*, size_t) {
    throw std::runtime_error("out of luck");
  };
  for (const auto& [collective, schedule] : kRootedWays) {
    if (collective == Collective::kBroadcast) continue;
    World world(3);
    Parts parts(world);
    const Work work{.elements = 3000,
                    .tag = 1,
                    .operation = ReduceOperation::kCustom,
                    .function = &throws,
                    .collective = collective,
                    .root = 0};
    RankRun<>* root = nullptr;
    // The root starts last, so the other ranks' data may arrive before it asks for it.
    for (int r = 2; r >= 0; --r) root = &parts.start(r, schedule, work);
    // In the chain, rank 2 fails first, and rank 0 receives nothing to add.
    const int failing = schedule == kChain ? 2 : 0;
    EXPECT_TRUE(parts.is_over(failing));
    if (failing == 0) {
      EXPECT_TRUE(absl::IsInternal(root->status)) << root->status;
    }
  }
}

TEST(HostsEngine, ChoosesForOtherCollectives) {
  const auto chosen = [](Collective collective, size_t bytes, bool commutative = true,
                         int ranks = 8) {
    Operation op;
    op.collective = collective;
    op.elements = bytes;
    op.element_size = 1;
    op.commutative = commutative;
    return *HostsEngine::choose(Algorithm::kAuto, ranks, op);
  };
  EXPECT_EQ(chosen(Collective::kBarrier, 0), ScheduleKind::kDissemination);
  EXPECT_EQ(chosen(Collective::kBroadcast, 0), ScheduleKind::kTree);
  EXPECT_EQ(chosen(Collective::kReduce, 1000), ScheduleKind::kTree);
  EXPECT_EQ(chosen(Collective::kReduce, 1000, false), ScheduleKind::kOrderedTree);
  EXPECT_EQ(chosen(Collective::kBroadcast, 10 << 20), kChain);
  EXPECT_EQ(chosen(Collective::kReduce, 10 << 20), kChain);
  EXPECT_EQ(chosen(Collective::kReduce, 10 << 20, false), ScheduleKind::kDirect);
  for (const int ranks : {2, 4, 8}) {
    const size_t block = size_t{1} << 10;
    const size_t all = block * static_cast<size_t>(ranks);
    EXPECT_EQ(chosen(Collective::kGather, all, true, ranks), ScheduleKind::kDirect) << ranks;
    EXPECT_EQ(chosen(Collective::kScatter, all, true, ranks), ScheduleKind::kTree) << ranks;
  }
  EXPECT_EQ(chosen(Collective::kGather, 4 * (4 << 10), true, 4), ScheduleKind::kTree);
  EXPECT_EQ(chosen(Collective::kGather, 16 * 64, true, 16), ScheduleKind::kTree);
  EXPECT_EQ(chosen(Collective::kGather, 10 << 20), ScheduleKind::kDirect);
  // The chain grows with the number of ranks.
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
    for (const auto& [ranks, small, large] : {std::tuple{2, 0, 32 << 10},
                                              {3, 16 << 10, 32 << 10},
                                              {4, 32 << 10, 48 << 10},
                                              {8, 48 << 10, 128 << 10},
                                              {64, 128 << 10, 1 << 20}}) {
      EXPECT_EQ(chosen(collective, static_cast<size_t>(small), true, ranks), ScheduleKind::kTree)
          << ranks;
      EXPECT_EQ(chosen(collective, static_cast<size_t>(large), true, ranks), kChain) << ranks;
    }
  }
}

TEST(HostsEngine, AnAllgatherOfAPowerOfTwoTakesOneConnectionPerStep) {
  const HostsEngine engine;
  for (const auto& [size, steps] : {std::pair{2, 1}, {4, 2}, {8, 3}, {1024, 10}}) {
    for (int rank = 0; rank < size; rank += 1 + size / 5) {
      Group group;
      group.rank = rank;
      group.size = size;
      Operation op;
      op.collective = Collective::kAllgather;
      EXPECT_EQ(engine.peers(group, op, {ScheduleKind::kBruck, 0, 0}).size(),
                static_cast<size_t>(steps))
          << rank << " of " << size;
    }
  }
}

TEST(HostsEngine, PeersOfOtherCollectivesAreMutual) {
  const HostsEngine engine;
  auto ways = std::vector<Way>(std::begin(kRootedWays), std::end(kRootedWays));
  ways.emplace_back(Collective::kBarrier, ScheduleKind::kDissemination);
  for (const auto& [collective, schedule] : ways) {
    for (int size = 1; size <= 17; ++size) {
      for (int root = 0; root < size; ++root) {
        const auto peers = [&, &collective = collective, &schedule = schedule](int rank) {
          Group group;
          group.rank = rank;
          group.size = size;
          Operation op;
          op.collective = collective;
          op.root = root;
          return engine.peers(group, op, {schedule, 0, 0});
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
}

}  // namespace
}  // namespace nezha
