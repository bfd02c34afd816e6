// SPDX-License-Identifier: Apache-2.0
// Checks the bits of allreduces, over loopback, with each algorithm and each number of ranks.

#include <array>
#include <cctype>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/hosts/choice.h"
#include "collectives/signature.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/hosts/documented_order.h"
#include "tests/unit/collectives/hosts/world.h"
#include "tests/unit/collectives/reference.h"

namespace nezha {
namespace {

class HostsEngineTest : public ::testing::TestWithParam<std::tuple<ScheduleKind, int>> {};
using HostsEngineTreeTest = HostsEngineTest;  // the algorithms that sum over the tree of ranks

TEST_P(HostsEngineTest, EveryRankGetsTheBitsOfTheDocumentedOrder) {
  const auto [schedule, size] = GetParam();
  World world(size);
  on_all_ranks(world, [schedule = schedule](Rank& rank) {
    uint32_t tag = 0;
    for (const size_t elements :
         {size_t{0}, size_t{1}, size_t{3}, size_t{16}, size_t{1001}, size_t{40'009}}) {
      for (const bool in_place : {false, true}) {
        allreduce(rank, schedule, {elements, ++tag, in_place}, {kWhole});
        if (::testing::Test::HasFailure()) return;
      }
    }
  });
}

TEST_P(HostsEngineTest, SlicesDoNotChangeTheBits) {
  const auto [schedule, size] = GetParam();
  World world(size);
  on_all_ranks(world, [schedule = schedule](Rank& rank) {
    constexpr uint32_t kCut = 300'001;
    const std::vector<Lane> lanes{{{0, kCut}, rail_bit(0)},
                                  {{kCut, SliceBounds::kWhole}, rail_bit(1)}};
    for (const size_t elements : {size_t{0}, size_t{5}, size_t{30'011}}) {
      allreduce(rank, schedule, {elements, static_cast<uint32_t>(elements), elements % 2 == 0},
                lanes);
      if (::testing::Test::HasFailure()) return;
    }
  });
}

// The result does not depend on the message, the element's place in it, the slices or the
// algorithm.
TEST_P(HostsEngineTreeTest, AnElementHasOneResult) {
  const auto [schedule, size] = GetParam();
  // Any first few of these have different sums in different orders.
  constexpr std::array kValues = {11.1F, -0.7F,  33e6F, 1.0F, 2e7F,  -3e-9F, -1.5F, -2e7F,
                                  -3e7F, 0.001F, 3e-9F, 1e8F, 5e-5F, -7e3F,  0.1F,  -1e8F};
  const std::vector<float> operands(kValues.begin(), kValues.begin() + size);
  const float one = over_tree(ReduceOperation::kSum, operands);
  if (size > 3) {
    EXPECT_NE(one, std::accumulate(operands.begin(), operands.end(), 0.0F));
  }
  World world(size);
  on_all_ranks(world, [&, schedule = schedule](Rank& rank) {
    const float own = operands[static_cast<size_t>(rank.group.rank)];
    const std::vector<Lane> cut{{{0, 700'001}, rail_bit(0)},
                                {{700'001, SliceBounds::kWhole}, rail_bit(1)}};
    uint32_t tag = 0;
    for (const size_t elements : {1, 2, 17, 1000, 50'021}) {
      for (const auto& lanes : {std::vector<Lane>{kWhole}, cut}) {
        const Work work{.elements = elements, .tag = ++tag, .in_place = tag % 2 == 0};
        const std::vector<float> wanted(elements, one);
        check_allreduce(rank, schedule, work, lanes, wanted, std::vector<float>(elements, own));
        if (HasFailure()) return;
      }
    }
  });
}

template <typename T>
void allreduce_of_special_values(Rank& rank, ScheduleKind schedule, uint32_t& tag) {
  for (const ReduceOperation operation : reference::kOperations) {
    const bool in_place = ++tag % 2 == 0;
    allreduce<T>(rank, schedule, {301, tag | kSpecialValues, in_place, operation}, {kWhole});
    if (::testing::Test::HasFailure()) return;
  }
}

// If both operands are NaNs or zeros, a CPU's additions and minima return one of the two. All ranks
// must still have the same bits.
TEST_P(HostsEngineTest, NansAndZerosAreTheSameBitsOnEveryRank) {
  const auto [schedule, size] = GetParam();
  World world(size);
  on_all_ranks(world, [schedule = schedule](Rank& rank) {
    if (rank.group.size == 1) return;  // one rank adds up nothing
    uint32_t tag = 0;
    allreduce_of_special_values<Float16>(rank, schedule, tag);
    allreduce_of_special_values<BFloat16>(rank, schedule, tag);
    allreduce_of_special_values<float>(rank, schedule, tag);
    allreduce_of_special_values<double>(rank, schedule, tag);
  });
}

template <typename T>
void allreduce_by_each(Rank& rank, ScheduleKind schedule, uint32_t& tag) {
  for (const ReduceOperation operation : reference::kOperations) {
    for (const size_t elements : {size_t{1}, size_t{1003}}) {
      const bool in_place = ++tag % 2 == 0;
      allreduce<T>(rank, schedule, {elements, tag, in_place, operation}, {kWhole});
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(HostsEngineTest, OtherTypesAndOperations) {
  const auto [schedule, size] = GetParam();
  World world(size);
  on_all_ranks(world, [schedule = schedule](Rank& rank) {
    uint32_t tag = 0;
    allreduce_by_each<int8_t>(rank, schedule, tag);
    allreduce_by_each<Float16>(rank, schedule, tag);
    allreduce_by_each<BFloat16>(rank, schedule, tag);
    allreduce_by_each<float>(rank, schedule, tag);
    allreduce_by_each<uint64_t>(rank, schedule, tag);
    allreduce_by_each<double>(rank, schedule, tag);
  });
}

TEST_P(HostsEngineTest, TheUsersOwnFunction) {
  const auto [schedule, size] = GetParam();
  World world(size);
  const ReduceFunction sum = [](void* out, const void* a, const void* b, size_t elements) {
    for (size_t i = 0; i < elements; ++i) {
      static_cast<float*>(out)[i] =
          static_cast<const float*>(a)[i] + static_cast<const float*>(b)[i];
    }
  };
  on_all_ranks(world, [&sum, schedule = schedule](Rank& rank) {
    uint32_t tag = 0;
    for (const size_t elements : {size_t{0}, size_t{1}, size_t{5003}}) {
      const bool in_place = ++tag % 2 == 0;
      allreduce(rank, schedule, {elements, tag, in_place, ReduceOperation::kCustom, &sum},
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
      for (const ScheduleKind schedule : kSchedules) {
        if (schedule == ScheduleKind::kRing || schedule == ScheduleKind::kBcube) continue;
        const size_t elements = schedule == ScheduleKind::kRecursiveDoubling ? 1 : 5003;
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
        check_allreduce(rank, schedule, work, {kWhole}, wanted,
                        inputs<uint64_t>(rank.group.rank, work));
      }
    });
  }
}

std::string name_of_sum(const ::testing::TestParamInfo<HostsEngineTest::ParamType>& param) {
  std::string name = schedule_name(std::get<0>(param.param));
  std::erase_if(name, [](char c) { return !std::isalpha(c); });
  return absl::StrCat(name, "_", std::get<1>(param.param));
}

INSTANTIATE_TEST_SUITE_P(, HostsEngineTest,
                         ::testing::Combine(::testing::ValuesIn(kSchedules),
                                            ::testing::ValuesIn(kSizes)),
                         name_of_sum);
INSTANTIATE_TEST_SUITE_P(, HostsEngineTreeTest,
                         ::testing::Combine(::testing::Values(ScheduleKind::kRecursiveDoubling,
                                                              ScheduleKind::kHalvingDoubling,
                                                              ScheduleKind::kDirect),
                                            ::testing::ValuesIn(kSizes)),
                         name_of_sum);

}  // namespace
}  // namespace nezha
