// SPDX-License-Identifier: Apache-2.0
// The result of an allreduce in the order of summation that each algorithm documents, and
// allreduces that are compared with it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

#include "collectives/partition.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/hosts/world.h"
#include "tests/unit/collectives/reference.h"

namespace nezha {

// The ring's order: chunk c begins at rank c, and each next rank adds its input: (partial) + input.
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

// Sums groups of neighbours first, then groups of these groups; within each group over its tree.
template <typename T>
std::vector<T> by_groups(ReduceOperation operation, const std::vector<int>& groups, size_t elements,
                         uint32_t tag) {
  const int size = std::accumulate(groups.begin(), groups.end(), 1, std::multiplies<>());
  std::vector<T> result(elements);
  std::vector<T> parts(static_cast<size_t>(size));
  for (size_t i = 0; i < elements; ++i) {
    for (int r = 0; r < size; ++r) parts[static_cast<size_t>(r)] = input<T>(r, i, tag);
    size_t count = parts.size();
    for (const int group : groups) {
      const auto each = static_cast<size_t>(group);
      for (size_t g = 0; g < count / each; ++g) {
        parts[g] = over_tree_of(operation, std::span<const T>(parts).subspan(g * each, each));
      }
      count /= each;
    }
    result[i] = parts[0];
  }
  return result;
}

// The group sizes that bcube.h documents.
const std::map<int, std::vector<int>> kBcubeGroups = {
    {1, {}},    {2, {2}},     {3, {3}},     {4, {4}},     {5, {5}},   {6, {3, 2}},
    {7, {7}},   {8, {4, 2}},  {9, {3, 3}},  {10, {2, 5}}, {11, {11}}, {12, {4, 3}},
    {13, {13}}, {14, {2, 7}}, {15, {3, 5}}, {16, {4, 4}}};

template <typename T>
std::vector<T> combined(ScheduleKind schedule, ReduceOperation operation, int size, size_t elements,
                        uint32_t tag) {
  switch (schedule) {
    case ScheduleKind::kRing:
      return by_ring<T>(operation, size, elements, tag);
    case ScheduleKind::kBcube:
      return by_groups<T>(operation, kBcubeGroups.at(size), elements, tag);
    default:
      return by_groups<T>(operation, {size}, elements, tag);
  }
}

template <typename T>
std::vector<T> expected(ScheduleKind schedule, ReduceOperation operation, int size, size_t elements,
                        uint32_t tag) {
  auto result = combined<T>(schedule, operation, size, elements, tag);
  if (operation == ReduceOperation::kAverage) {
    for (T& value : result) value = reference::divide(value, size);
  }
  return result;
}

// As expected(), but the ranks of this process share one result: the first to ask computes it.
template <typename T>
std::shared_ptr<const std::vector<T>> expected_by_all(ScheduleKind schedule,
                                                      ReduceOperation operation, int size,
                                                      size_t elements, uint32_t tag) {
  using Case = std::tuple<ScheduleKind, ReduceOperation, int, size_t, uint32_t>;
  static std::mutex mutex;
  static std::map<Case, std::shared_ptr<const std::vector<T>>> known;
  const std::lock_guard lock(mutex);
  const Case wanted{schedule, operation, size, elements, tag};
  if (const auto it = known.find(wanted); it != known.end()) return it->second;
  if (known.size() == 64) known.clear();  // the ranks of a test are never that many cases apart
  auto result =
      std::make_shared<const std::vector<T>>(expected<T>(schedule, operation, size, elements, tag));
  known[wanted] = result;
  return result;
}

constexpr ScheduleKind kSchedules[] = {ScheduleKind::kRing, ScheduleKind::kRecursiveDoubling,
                                       ScheduleKind::kHalvingDoubling, ScheduleKind::kDirect,
                                       ScheduleKind::kBcube};

template <typename T>
void check_allreduce(Rank& rank, ScheduleKind schedule, const Work& work,
                     const std::vector<Lane>& lanes, const std::vector<T>& wanted,
                     const std::vector<T>& in) {
  Progress& progress = rank.endpoint->progress();
  RankRun<T> run(rank, schedule, work, lanes, in);
  {
    Progress::Guard guard(progress);
    run.start();
    EXPECT_TRUE(progress.wait(guard, run.waiter, now() + 60 * kSecond)) << "it hangs";
    run.freeze();
    progress.run_deferred();
  }
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_TRUE(run.input_is_intact());
  const size_t first = reference::first_difference(run.result(), wanted);
  ASSERT_EQ(first, work.elements) << nameOf(dataTypeOf<T>()) << " " << nameOf(work.operation)
                                  << ": element " << first << " of " << work.elements << " at rank "
                                  << rank.group.rank;
}

template <typename T = float>
void allreduce(Rank& rank, ScheduleKind schedule, const Work& work,
               const std::vector<Lane>& lanes) {
  // The tests' own functions are sums.
  const auto operation = work.function == nullptr ? work.operation : ReduceOperation::kSum;
  check_allreduce(
      rank, schedule, work, lanes,
      *expected_by_all<T>(schedule, operation, rank.group.size, work.elements, work.tag),
      inputs<T>(rank.group.rank, work));
}

}  // namespace nezha
