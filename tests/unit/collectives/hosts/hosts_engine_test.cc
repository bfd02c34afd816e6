// The hosts engine's algorithms, each rank an endpoint and a thread of this process, over loopback.
#include "collectives/hosts/hosts_engine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/hosts/choice.h"
#include "collectives/signature.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/hosts/world.h"
#include "tests/unit/collectives/reference.h"

namespace nezha {
namespace {

// The ring's order: chunk c begins at rank c; each next rank adds its own: (partial) + input.
template <typename T>
std::vector<T> by_ring(ReduceOperation operation, int size, size_t elements, uint32_t tag) {
  std::vector<T> result(elements);
  const Partition partition(elements, sizeof(T), size);
  for (int chunk = 0; chunk < size; ++chunk) {
    const Range range = partition.chunk(chunk, {});
    for (size_t i = range.offset / sizeof(T); i < (range.offset + range.length) / sizeof(T); ++i) {
      T sum = input<T>(chunk, i, tag);
      for (int step = 1; step < size; ++step) {
        sum = reference::combine(operation, sum, input<T>((chunk + step) % size, i, tag));
      }
      result[i] = sum;
    }
  }
  return result;
}

// Groups of neighbours first, then groups of these; in each of them over its tree.
template <typename T>
std::vector<T> by_groups(ReduceOperation operation, const std::vector<int>& groups, size_t elements,
                         uint32_t tag) {
  const int size = std::accumulate(groups.begin(), groups.end(), 1, std::multiplies<>());
  std::vector<T> result(elements);
  for (size_t i = 0; i < elements; ++i) {
    std::vector<T> parts;
    parts.reserve(static_cast<size_t>(size));
    for (int r = 0; r < size; ++r) parts.push_back(input<T>(r, i, tag));
    for (const int group : groups) {
      std::vector<T> sums;
      for (auto first = parts.begin(); first != parts.end(); first += group) {
        sums.push_back(over_tree(operation, std::vector<T>(first, first + group)));
      }
      parts = sums;
    }
    result[i] = parts[0];
  }
  return result;
}

// As bcube.h says.
const std::map<int, std::vector<int>> kBcubeGroups = {
    {1, {}},    {2, {2}},     {3, {3}},     {4, {4}},     {5, {5}},   {6, {3, 2}},
    {7, {7}},   {8, {4, 2}},  {9, {3, 3}},  {10, {2, 5}}, {11, {11}}, {12, {4, 3}},
    {13, {13}}, {14, {2, 7}}, {15, {3, 5}}, {16, {4, 4}}};

template <typename T>
std::vector<T> combined(Algorithm algorithm, ReduceOperation operation, int size, size_t elements,
                        uint32_t tag) {
  switch (algorithm) {
    case Algorithm::kRing:
      return by_ring<T>(operation, size, elements, tag);
    case Algorithm::kBcube:
      return by_groups<T>(operation, kBcubeGroups.at(size), elements, tag);
    default:
      return by_groups<T>(operation, {size}, elements, tag);
  }
}

template <typename T>
std::vector<T> expected(Algorithm algorithm, ReduceOperation operation, int size, size_t elements,
                        uint32_t tag) {
  auto result = combined<T>(algorithm, operation, size, elements, tag);
  if (operation == ReduceOperation::kAverage) {
    for (T& value : result) value = reference::divide(value, size);
  }
  return result;
}

constexpr Algorithm kAlgorithms[] = {Algorithm::kRing, Algorithm::kRecursiveDoubling,
                                     Algorithm::kHalvingDoubling, Algorithm::kDirect,
                                     Algorithm::kBcube};

constexpr ReduceOperation kOperations[] = {ReduceOperation::kSum, ReduceOperation::kProduct,
                                           ReduceOperation::kMin, ReduceOperation::kMax,
                                           ReduceOperation::kAverage};

template <typename T>
void check_allreduce(Rank& rank, Algorithm algorithm, const Work& work,
                     const std::vector<Lane>& lanes, const std::vector<T>& wanted,
                     const std::vector<T>& in) {
  Progress& progress = rank.endpoint->progress();
  RankRun<T> run(rank, algorithm, work, lanes, in);
  {
    Progress::Guard guard(progress);
    run.start();
    EXPECT_TRUE(progress.wait(guard, run.waiter, now() + 60 * kSecond)) << "it hangs";
    run.freeze();
    progress.run_deferred();
  }
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_TRUE(run.input_is_intact());
  for (size_t i = 0; i < work.elements; ++i) {
    ASSERT_EQ(reference::bits_of(run.result()[i]), reference::bits_of(wanted[i]))
        << name_of(data_type_of<T>()) << " " << name_of(work.operation) << ": element " << i
        << " of " << work.elements << " at rank " << rank.group.rank;
  }
}

template <typename T = float>
void allreduce(Rank& rank, Algorithm algorithm, const Work& work, const std::vector<Lane>& lanes) {
  // A function of the user's own is a sum.
  const auto operation = work.function == nullptr ? work.operation : ReduceOperation::kSum;
  check_allreduce(rank, algorithm, work, lanes,
                  expected<T>(algorithm, operation, rank.group.size, work.elements, work.tag),
                  inputs<T>(rank.group.rank, work));
}

class HostsEngineTest : public ::testing::TestWithParam<std::tuple<Algorithm, int>> {};
using HostsEngineTreeTest = HostsEngineTest;  // of those that sum over the tree of ranks

TEST_P(HostsEngineTest, EveryRankGetsTheBitsOfTheDocumentedOrder) {
  const auto [algorithm, size] = GetParam();
  World world(size);
  on_all_ranks(world, [algorithm = algorithm](Rank& rank) {
    uint32_t tag = 0;
    for (const size_t elements :
         {size_t{0}, size_t{1}, size_t{3}, size_t{16}, size_t{1001}, size_t{40'009}}) {
      for (const bool in_place : {false, true}) {
        allreduce(rank, algorithm, {elements, ++tag, in_place}, {kWhole});
        if (::testing::Test::HasFailure()) return;
      }
    }
  });
}

TEST_P(HostsEngineTest, SlicesDoNotChangeTheBits) {
  const auto [algorithm, size] = GetParam();
  World world(size);
  on_all_ranks(world, [algorithm = algorithm](Rank& rank) {
    constexpr uint32_t kCut = 300'001;
    const std::vector<Lane> lanes{{{0, kCut}, rail_bit(0)},
                                  {{kCut, SliceBounds::kWhole}, rail_bit(1)}};
    for (const size_t elements : {size_t{0}, size_t{5}, size_t{30'011}}) {
      allreduce(rank, algorithm, {elements, static_cast<uint32_t>(elements), elements % 2 == 0},
                lanes);
      if (::testing::Test::HasFailure()) return;
    }
  });
}

// Whatever the message, its place there, the slices and the algorithm.
TEST_P(HostsEngineTreeTest, AnElementHasOneResult) {
  const auto [algorithm, size] = GetParam();
  // Of which any first few differ by their order of summation.
  constexpr std::array kValues = {11.1F, -0.7F,  33e6F, 1.0F, 2e7F,  -3e-9F, -1.5F, -2e7F,
                                  -3e7F, 0.001F, 3e-9F, 1e8F, 5e-5F, -7e3F,  0.1F,  -1e8F};
  const std::vector<float> operands(kValues.begin(), kValues.begin() + size);
  const float one = over_tree(ReduceOperation::kSum, operands);
  if (size > 3) {
    EXPECT_NE(one, std::accumulate(operands.begin(), operands.end(), 0.0F));
  }
  World world(size);
  on_all_ranks(world, [&, algorithm = algorithm](Rank& rank) {
    const float own = operands[static_cast<size_t>(rank.group.rank)];
    const std::vector<Lane> cut{{{0, 700'001}, rail_bit(0)},
                                {{700'001, SliceBounds::kWhole}, rail_bit(1)}};
    uint32_t tag = 0;
    for (const size_t elements : {1, 2, 17, 1000, 50'021}) {
      for (const auto& lanes : {std::vector<Lane>{kWhole}, cut}) {
        const Work work{.elements = elements, .tag = ++tag, .in_place = tag % 2 == 0};
        const std::vector<float> wanted(elements, one);
        check_allreduce(rank, algorithm, work, lanes, wanted, std::vector<float>(elements, own));
        if (HasFailure()) return;
      }
    }
  });
}

template <typename T>
void allreduce_of_special_values(Rank& rank, Algorithm algorithm, uint32_t& tag) {
  for (const ReduceOperation operation : kOperations) {
    const bool in_place = ++tag % 2 == 0;
    allreduce<T>(rank, algorithm, {301, tag | kSpecialValues, in_place, operation}, {kWhole});
    if (::testing::Test::HasFailure()) return;
  }
}

// A CPU's additions and minima return the NaN, or the zero, of one of their operands: which one
// must not show.
TEST_P(HostsEngineTest, NansAndZerosAreTheSameBitsOnEveryRank) {
  const auto [algorithm, size] = GetParam();
  World world(size);
  on_all_ranks(world, [algorithm = algorithm](Rank& rank) {
    if (rank.group.size == 1) return;  // nothing is added up
    uint32_t tag = 0;
    allreduce_of_special_values<Float16>(rank, algorithm, tag);
    allreduce_of_special_values<BFloat16>(rank, algorithm, tag);
    allreduce_of_special_values<float>(rank, algorithm, tag);
    allreduce_of_special_values<double>(rank, algorithm, tag);
  });
}

template <typename T>
void allreduce_by_each(Rank& rank, Algorithm algorithm, uint32_t& tag) {
  for (const ReduceOperation operation : kOperations) {
    for (const size_t elements : {size_t{1}, size_t{1003}}) {
      const bool in_place = ++tag % 2 == 0;
      allreduce<T>(rank, algorithm, {elements, tag, in_place, operation}, {kWhole});
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(HostsEngineTest, OtherTypesAndOperations) {
  const auto [algorithm, size] = GetParam();
  World world(size);
  on_all_ranks(world, [algorithm = algorithm](Rank& rank) {
    uint32_t tag = 0;
    allreduce_by_each<int8_t>(rank, algorithm, tag);
    allreduce_by_each<Float16>(rank, algorithm, tag);
    allreduce_by_each<BFloat16>(rank, algorithm, tag);
    allreduce_by_each<float>(rank, algorithm, tag);
    allreduce_by_each<uint64_t>(rank, algorithm, tag);
    allreduce_by_each<double>(rank, algorithm, tag);
  });
}

TEST_P(HostsEngineTest, TheUsersOwnFunction) {
  const auto [algorithm, size] = GetParam();
  World world(size);
  const ReduceFunction sum = [](void* out, const void* a, const void* b, size_t elements) {
    for (size_t i = 0; i < elements; ++i) {
      static_cast<float*>(out)[i] =
          static_cast<const float*>(a)[i] + static_cast<const float*>(b)[i];
    }
  };
  on_all_ranks(world, [&sum, algorithm = algorithm](Rank& rank) {
    uint32_t tag = 0;
    for (const size_t elements : {size_t{0}, size_t{1}, size_t{5003}}) {
      const bool in_place = ++tag % 2 == 0;
      allreduce(rank, algorithm, {elements, tag, in_place, ReduceOperation::kCustom, &sum},
                {kWhole});
    }
  });
}

TEST(HostsEngine, TheTreeKeepsOperandsInTheOrderOfRanks) {
  const ReduceFunction function = [](void* out, const void* a, const void* b, size_t elements) {
    for (size_t i = 0; i < elements; ++i) {
      static_cast<uint64_t*>(out)[i] =
          compose(static_cast<const uint64_t*>(a)[i], static_cast<const uint64_t*>(b)[i]);
    }
  };
  for (const int size : {2, 3, 5, 8}) {
    World world(size);
    on_all_ranks(world, [&function](Rank& rank) {
      uint32_t tag = 0;
      for (const Algorithm algorithm : kAlgorithms) {
        if (!sums_over_tree(algorithm)) continue;
        const size_t elements = algorithm == Algorithm::kRecursiveDoubling ? 1 : 5003;
        const Work work{.elements = elements,
                        .tag = ++tag,
                        .in_place = elements == 1,
                        .operation = ReduceOperation::kCustom,
                        .function = &function};
        std::vector<uint64_t> wanted(elements);
        for (size_t i = 0; i < elements; ++i) {
          wanted[i] = input<uint64_t>(0, i, work.tag);
          for (int r = 1; r < rank.group.size; ++r) {
            wanted[i] = compose(wanted[i], input<uint64_t>(r, i, work.tag));
          }
        }
        check_allreduce(rank, algorithm, work, {kWhole}, wanted,
                        inputs<uint64_t>(rank.group.rank, work));
      }
    });
  }
}

std::string name_of_case(const ::testing::TestParamInfo<HostsEngineTest::ParamType>& param) {
  std::string name = algorithm_name(std::get<0>(param.param));
  std::erase_if(name, [](char c) { return !std::isalpha(c); });
  return absl::StrCat(name, "_", std::get<1>(param.param));
}

INSTANTIATE_TEST_SUITE_P(, HostsEngineTest,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms),
                                            ::testing::Range(1, 17)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(, HostsEngineTreeTest,
                         ::testing::Combine(::testing::Values(Algorithm::kRecursiveDoubling,
                                                              Algorithm::kHalvingDoubling,
                                                              Algorithm::kDirect),
                                            ::testing::Range(1, 17)),
                         name_of_case);

TEST(HostsEngine, NoRankIsDoneBeforeTheLastHasBegun) {
  std::vector<std::pair<Algorithm, size_t>> cases;
  for (const Algorithm algorithm : kAlgorithms) {
    for (const size_t elements : {0, 1, 1000}) {
      // Around a ring of nothing a rank waits for nobody: the engine does not choose it.
      if (algorithm != Algorithm::kRing || elements > 0) cases.emplace_back(algorithm, elements);
    }
  }
  for (const auto& [algorithm, elements] : cases) {
    World world(4);
    std::vector<std::unique_ptr<RankRun<>>> runs;
    runs.reserve(4);
    for (int r = 0; r < 4; ++r) {
      runs.push_back(std::make_unique<RankRun<>>(world.rank(r), algorithm, Work{elements, 1},
                                                 std::vector<Lane>{kWhole}));
    }
    const auto progress_of = [&](int r) -> Progress& { return world.rank(r).endpoint->progress(); };
    const auto start = [&](int r) {
      Progress::Guard guard(progress_of(r));
      runs[static_cast<size_t>(r)]->start();
    };
    const auto is_done = [&](int r, Nanos within) {
      Progress::Guard guard(progress_of(r));
      return progress_of(r).wait(guard, runs[static_cast<size_t>(r)]->waiter, now() + within);
    };
    for (int r = 0; r < 3; ++r) start(r);
    for (int r = 0; r < 3; ++r) EXPECT_FALSE(is_done(r, 50 * kMillisecond)) << "rank " << r;
    start(3);
    for (int r = 0; r < 4; ++r) EXPECT_TRUE(is_done(r, 60 * kSecond)) << "rank " << r;
    for (int r = 0; r < 4; ++r) {
      Progress::Guard guard(progress_of(r));
      runs[static_cast<size_t>(r)].reset();
      progress_of(r).run_deferred();
    }
  }
}

// The ring's window, and several rounds of the others.
TEST(HostsEngine, Megabytes) {
  for (const int size : {3, 4}) {
    World world(size);
    on_all_ranks(world, [](Rank& rank) {
      uint32_t tag = 0;
      for (const Algorithm algorithm : kAlgorithms) {
        allreduce(rank, algorithm, {(2 << 20) + 1, ++tag}, {kWhole});
        allreduce(rank, algorithm, {(1 << 20) + 7, ++tag, true}, {kWhole});
      }
    });
  }
}

void run_operations_of_different_tags(World& world) {
  on_all_ranks(world, [](Rank& rank) {
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&rank, t] {
        for (uint32_t i = 0; i < 10; ++i) {
          // Another order on each rank.
          const uint32_t tag = (t + static_cast<uint32_t>(rank.group.rank)) % 4;
          allreduce(rank, kAlgorithms[(tag + i) % std::size(kAlgorithms)],
                    {1000 * (tag + 1) + i, tag}, {kWhole});
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

TEST(HostsEngine, OperationsOfDifferentTagsRunAtOnceInAnyOrder) {
  World world(4);
  run_operations_of_different_tags(world);
}

TEST(HostsEngine, RailsMayHaveThreadsOfTheirOwn) {
  World world(4, allowed_cpus());
  run_operations_of_different_tags(world);
  on_all_ranks(world, [](Rank& rank) {
    for (const Algorithm algorithm : kAlgorithms) {
      allreduce(rank, algorithm, {(1 << 18) + 1, 7}, {kWhole});
    }
  });
}

TEST(HostsEngine, RanksThatDisagreeAreTold) {
  for (const Algorithm algorithm : kAlgorithms) {
    World world(2);
    on_all_ranks(world, [algorithm](Rank& rank) {
      Progress& progress = rank.endpoint->progress();
      RankRun run(rank, algorithm, {rank.group.rank == 0 ? size_t{100} : 101, 1}, {kWhole});
      Progress::Guard guard(progress);
      run.start();
      EXPECT_TRUE(progress.wait(guard, run.waiter, now() + 60 * kSecond));
      run.freeze();
      progress.run_deferred();
      EXPECT_TRUE(absl::IsFailedPrecondition(run.status)) << run.status;
      EXPECT_NE(run.status.message().find(absl::StrCat("rank ", 1 - rank.group.rank)),
                absl::string_view::npos);
    });
  }
}

// A peer that sends parts of elements breaks the protocol: nothing of it is used.
TEST(HostsEngine, SegmentsThatCutElementsAreRefused) {
  struct Mute final : Sender {
    void released(uint64_t, size_t) override {}
    void settled() override {}
    void failed(const absl::Status&) override {}
  } mute;
  constexpr size_t kElements = 100;
  const std::vector<std::byte> data(8);
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kRecursiveDoubling}) {
    for (const auto& [offset, length] : {std::pair<uint64_t, size_t>{2, 4}, {4, 3}}) {
      SCOPED_TRACE(absl::StrCat("offset ", offset, ", length ", length));
      World world(2);
      Progress& progress = world.rank(0).endpoint->progress();
      RankRun run(world.rank(0), algorithm, {kElements, 1}, {kWhole});
      {
        Progress::Guard guard(progress);
        run.start();
      }
      {
        Rank& rogue = world.rank(1);
        Progress::Guard guard(rogue.endpoint->progress());
        Operation op;
        op.elements = kElements;
        op.element_size = sizeof(float);
        op.tag = 1;
        EnginePlan plan;
        plan.algorithm = algorithm;
        Channel& channel = *rogue.group.channels[0];
        OutMessage* message = channel.open(
            message_info(rogue.group, {op, {}, 0}, plan, kElements * sizeof(float)), {}, &mute);
        channel.push(*message, offset, data.data(), length);
        rogue.endpoint->progress().run_deferred();
      }
      Progress::Guard guard(progress);
      const auto refused = [&] {
        uint64_t failures = 0;
        for (const Rail rail : {0, 1}) {
          failures += world.rank(0).endpoint->device(rail)->counters().failures;
        }
        return failures > 0;
      };
      for (int i = 0; i < 10'000 && !refused(); ++i) {
        Waiter tick;
        progress.wait(guard, tick, now() + kMillisecond);
      }
      EXPECT_TRUE(refused());
      EXPECT_FALSE(run.waiter.done());
      run.freeze();
      progress.run_deferred();
    }
  }
}

TEST(HostsEngine, ADeadRankFailsTheOthersTask) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const size_t elements : {size_t{10}, size_t{200'000}}) {
      World world(3);
      on_all_ranks(world, [algorithm](Rank& rank) {
        allreduce(rank, algorithm, {1000, 1}, {kWhole});
      });
      world.kill(2);
      // Rank 0 is joined to rank 2 in all algorithms.
      Rank& rank = world.rank(0);
      Progress& progress = rank.endpoint->progress();
      RankRun run(rank, algorithm, {elements, 3, true}, {kWhole});
      Progress::Guard guard(progress);
      run.start();
      EXPECT_TRUE(progress.wait(guard, run.waiter, now() + 60 * kSecond));
      run.freeze();
      progress.run_deferred();
      EXPECT_TRUE(absl::IsUnavailable(run.status)) << run.status;
      EXPECT_NE(run.status.message().find("rank 2"), absl::string_view::npos) << run.status;
    }
  }
}

// Rank 0's, in a partial sum if there are three ranks. Also when the data has come before it is
// asked for, and is reduced while the task starts.
void check_function_that_throws(Algorithm algorithm, int size, bool data_is_there) {
  const ReduceFunction nothing = [](void*, const void*, const void*, size_t) {};
  const ReduceFunction throws = [](void*, const void*, const void*, size_t) {
    throw std::runtime_error("out of luck");
  };
  const std::vector<Lane> one_rail{{{}, rail_bit(0)}};
  World world(size);
  std::vector<std::unique_ptr<RankRun<>>> runs;
  for (int r = 0; r < size; ++r) {
    const Work work{.elements = 3000,
                    .tag = 1,
                    .operation = ReduceOperation::kCustom,
                    .function = r == 0 ? &throws : &nothing};
    runs.push_back(std::make_unique<RankRun<>>(world.rank(r), algorithm, work, one_rail));
  }
  const auto start = [&](int rank) {
    Progress::Guard guard(world.rank(rank).endpoint->progress());
    runs[static_cast<size_t>(rank)]->start();
  };
  if (!data_is_there) start(0);
  for (int r = 1; r < size; ++r) start(r);
  if (data_is_there) {  // what the same link carries later has come, too
    on_all_ranks(world, [&](Rank& rank) { allreduce(rank, algorithm, {1000, 2}, one_rail); });
    start(0);
  }
  for (int r = 0; r < size; ++r) {
    RankRun<>& run = *runs[static_cast<size_t>(r)];
    Progress& progress = world.rank(r).endpoint->progress();
    Progress::Guard guard(progress);
    if (r == 0) {
      EXPECT_TRUE(progress.wait(guard, run.waiter, now() + 60 * kSecond));
      EXPECT_TRUE(absl::IsInternal(run.status)) << run.status;
      EXPECT_NE(run.status.message().find("out of luck"), absl::string_view::npos);
    }
    run.freeze();
    progress.run_deferred();
  }
}

TEST(HostsEngine, AFunctionThatThrowsFailsTheTask) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const int size : {2, 3}) {
      for (const bool data_is_there : {false, true}) {
        SCOPED_TRACE(absl::StrCat(algorithm_name(algorithm), ", ", size, " ranks, ",
                                  data_is_there ? "late" : "early"));
        check_function_that_throws(algorithm, size, data_is_there);
      }
    }
  }
}

TEST(HostsEngine, AFrozenTaskLeavesTheMemoryAlone) {
  for (const Algorithm algorithm : kAlgorithms) {
    World world(2);
    {
      Rank& rank = world.rank(0);
      Progress& progress = rank.endpoint->progress();
      auto run = std::make_unique<RankRun<>>(rank, algorithm, Work{50'000, 1, true},
                                             std::vector<Lane>{kWhole});
      Progress::Guard guard(progress);
      run->start();
      run->freeze();
      EXPECT_EQ(run->status, absl::OkStatus()) << "the owner is not told";
      EXPECT_EQ(run->result()[7], input(0, 7, 1)) << "no final value, so still the input";
      run.reset();  // the address sanitizer sees what is used afterwards
      progress.run_deferred();
    }
    Rank& other = world.rank(1);
    Progress& progress = other.endpoint->progress();
    RankRun run(other, algorithm, {50'000, 1, true}, {kWhole});
    Progress::Guard guard(progress);
    run.start();
    EXPECT_FALSE(progress.wait(guard, run.waiter, now() + 20 * kMillisecond));
    run.freeze();
    progress.run_deferred();
  }
}

Operation operation_of(size_t elements) {
  Operation op;
  op.elements = elements;
  op.element_size = 4;
  return op;
}

Algorithm chosen(Algorithm asked, int ranks, const Operation& operation) {
  return HostsEngine::choose(asked, ranks, operation).value_or(Algorithm::kAuto);
}

Algorithm chosen(int ranks, size_t elements) {
  return chosen(Algorithm::kAuto, ranks, operation_of(elements));
}

TEST(HostsEngine, ChoosesByRanksAndSize) {
  EXPECT_EQ(chosen(8, 16), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(8, 64 << 10), Algorithm::kHalvingDoubling);
  EXPECT_EQ(chosen(8, 16 << 20), Algorithm::kRing);
  EXPECT_EQ(chosen(2, 64 << 10), Algorithm::kRing);
  EXPECT_EQ(chosen(1000, 16), Algorithm::kRecursiveDoubling);
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
  for (const Algorithm asked : kAlgorithms) {
    EXPECT_EQ(chosen(asked, 8, operation_of(1000)), asked);
    EXPECT_EQ(chosen(asked, 8, operation_of(0)), Algorithm::kRecursiveDoubling);
    for (const size_t elements : {0, 1000}) {
      for (const Operation& operation : bound_to_the_tree(elements)) {
        const auto choice = HostsEngine::choose(asked, 8, operation);
        EXPECT_EQ(choice.ok(), sums_over_tree(asked)) << choice.status();
        if (choice.ok() && elements > 0) {
          EXPECT_EQ(*choice, asked);
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
       {"ring", "reproducible", "recursive doubling", "halving-doubling", "direct"}) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << part << ": " << status;
  }
}

TEST(HostsEngine, PeersAreMutual) {
  const HostsEngine engine;
  for (const Algorithm algorithm : kAlgorithms) {
    for (int size = 1; size <= 33; ++size) {
      const auto peers = [&](int rank) {
        Group group;
        group.rank = rank;
        group.size = size;
        return engine.peers(group, {}, {algorithm, 0, 0});
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
