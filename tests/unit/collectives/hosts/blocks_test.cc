// SPDX-License-Identifier: Apache-2.0
// The collectives whose vector consists of a block for each rank. Each algorithm must produce the
// right bits for each number of ranks, for equal, unequal and empty blocks, in place and not.

#include <algorithm>
#include <bit>
#include <cctype>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/signature.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/hosts/documented_order.h"
#include "tests/unit/collectives/hosts/world.h"
#include "tests/unit/collectives/reference.h"

namespace nezha {
namespace {

using Counts = std::vector<size_t>;
using Floats = std::vector<float>;

// What all ranks do.
struct Exchange {
  Collective collective = Collective::kAllgather;
  ScheduleKind schedule = ScheduleKind::kRing;
  // Elements by rank. In an alltoall, what rank 0 sends to each rank; rank r sends the same counts,
  // rotated by r.
  Counts counts;
  uint32_t tag = 0;
  int root = 0;
  bool in_place = false;
  ReduceOperation operation = ReduceOperation::kSum;

  size_t size() const { return counts.size(); }
  bool is_alltoall() const {
    return collective == Collective::kAlltoall || collective == Collective::kAlltoallv;
  }
  bool is_rooted() const { return traits(collective).to_root != nullptr; }
  Counts sent_by(size_t rank) const {
    Counts sent = counts;
    if (is_alltoall()) {
      std::rotate(sent.rbegin(), sent.rbegin() + static_cast<ptrdiff_t>(rank), sent.rend());
    }
    return sent;
  }
  Counts received_by(size_t rank) const {
    if (!is_alltoall()) return counts;
    Counts received;
    for (size_t from = 0; from < size(); ++from) received.push_back(sent_by(from)[rank]);
    return received;
  }
};

size_t sum(const Counts& counts, size_t end) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(end), size_t{0});
}
size_t sum(const Counts& counts) { return sum(counts, counts.size()); }

// The values in a part of the rank's vector.
Floats values(size_t rank, size_t first, size_t count, uint32_t tag) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values[i] = input(static_cast<int>(rank), first + i, tag);
  return values;
}

// The sum in the order that course.h, halving.h or direct.h documents.
float summed(const Exchange& work, const Floats& operands, size_t block) {
  const auto combine = [&](float a, float b) { return reference::combine(work.operation, a, b); };
  const size_t n = operands.size();
  if (work.schedule == ScheduleKind::kDirect) return over_tree(work.operation, operands);
  if (work.schedule == ScheduleKind::kRing) {
    float sum = operands[(block + 1) % n];
    for (size_t i = 2; i <= n; ++i) sum = combine(sum, operands[(block + i) % n]);
    return sum;
  }
  const size_t power = std::bit_floor(n);
  Floats members;
  members.reserve(power);
  for (size_t i = 0; i < n - power; ++i) {
    members.push_back(combine(operands[2 * i], operands[2 * i + 1]));
  }
  members.insert(members.end(), operands.begin() + static_cast<ptrdiff_t>(2 * (n - power)),
                 operands.end());
  for (size_t half = power / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) members[i] = combine(members[i], members[i + half]);
  }
  return members.front();
}

Floats expected_sums(const Exchange& work, size_t rank) {
  const size_t first = sum(work.counts, rank);
  Floats result(work.counts[rank]);
  Floats operands(work.size());
  for (size_t i = 0; i < result.size(); ++i) {
    for (size_t r = 0; r < work.size(); ++r) {
      operands[r] = input(static_cast<int>(r), first + i, work.tag);
    }
    result[i] = work.size() == 1 ? operands.front() : summed(work, operands, rank);
    if (work.operation == ReduceOperation::kAverage && work.size() > 1) {
      result[i] = reference::divide(result[i], static_cast<int>(work.size()));
    }
  }
  return result;
}

// What the rank must have in the end. Where the other ranks' inputs are blocks of their own, they
// begin at 0.
Floats expected(const Exchange& work, size_t rank) {
  const auto root = static_cast<size_t>(work.root);
  if (work.collective == Collective::kReduceScatter) return expected_sums(work, rank);
  if (traits(work.collective).gives_block) {
    return values(root, sum(work.counts, rank), work.counts[rank], work.tag);
  }
  Floats result;
  for (size_t from = 0; from < work.size(); ++from) {
    const Counts sent = work.sent_by(from);
    const auto more = work.is_alltoall() ? values(from, sum(sent, rank), sent[rank], work.tag)
                                         : values(from, 0, sent[from], work.tag);
    result.insert(result.end(), more.begin(), more.end());
  }
  return result;
}

// One rank's memory and operation.
struct Part {
  Part(const Exchange& work, size_t rank) {
    const CollectiveTraits& kind = traits(work.collective);
    const bool is_root = static_cast<int>(rank) == work.root;
    const Counts sent = work.sent_by(rank);
    const Counts received = work.received_by(rank);
    const bool has_input = kind.takes_block || !work.is_rooted() || is_root;
    const bool has_output = kind.gives_block || !work.is_rooted() || is_root;
    const size_t own = sum(sent, rank);
    in = values(rank, 0, !has_input ? 0 : kind.takes_block ? sent[rank] : sum(sent), work.tag);
    out.assign(!has_output ? 0 : kind.gives_block ? sent[rank] : sum(received), -1);
    op.collective = work.collective;
    op.root = work.root;
    op.element_size = sizeof(float);
    op.operation = work.operation;
    op.elements = sum(sent);
    op.blocks = std::make_shared<const Blocks>(sent, sizeof(float));
    if (work.is_alltoall()) {
      op.received_blocks = std::make_shared<const Blocks>(received, sizeof(float));
    }
    op.tag = work.tag;
    if (has_input) {
      op.input = reinterpret_cast<const std::byte*>(in.data());
      if (kind.takes_block) op.input_offset = own * sizeof(float);
    }
    if (has_output) {
      op.output = reinterpret_cast<std::byte*>(out.data());
      if (kind.gives_block) op.output_offset = own * sizeof(float);
    }
    if (work.in_place && has_input && has_output) share_memory(kind, own);
    original = in;
  }

  // Places the input and the output in one vector.
  void share_memory(const CollectiveTraits& kind, size_t own) {
    is_shared = true;
    if (kind.takes_block) {
      std::copy(in.begin(), in.end(), out.begin() + static_cast<ptrdiff_t>(own));
      op.input = op.output + op.input_offset;
    } else if (kind.gives_block) {
      result_at = own;
      op.output = reinterpret_cast<std::byte*>(in.data()) + op.output_offset;
    }
  }
  Floats result() const {
    if (!is_shared || !traits(op.collective).gives_block) return out;
    const auto begin = in.begin() + static_cast<ptrdiff_t>(result_at);
    return {begin, begin + static_cast<ptrdiff_t>(out.size())};
  }

  Floats in, out, original;
  bool is_shared = false;
  size_t result_at = 0;
  Operation op;
};

class Waits final : public TaskOwner {
 public:
  explicit Waits(Progress& progress) : progress_(progress) {}
  void on_finished(Task&) override { progress_.finish(waiter); }
  Waiter waiter;

 private:
  Progress& progress_;
};

void run(Rank& rank, const Exchange& work) {
  SCOPED_TRACE(absl::StrCat(collective_name(work.collective, static_cast<uint64_t>(work.root)),
                            " by ", schedule_name(work.schedule), ", rank ", rank.group.rank,
                            " of ", rank.group.size, work.in_place ? ", in place" : "", ", counts ",
                            absl::StrJoin(work.counts, " ")));
  const auto number = static_cast<size_t>(rank.group.rank);
  Progress& progress = rank.endpoint->progress();
  Part part(work, number);
  Waits waits(progress);
  {
    Progress::Guard guard(progress);
    auto task =
        rank.engine.start(rank.group, {part.op, {}, 0, kAllRails}, {work.schedule, 0, 0}, waits);
    ASSERT_TRUE(task.ok()) << task.status();
    EXPECT_TRUE(progress.wait(guard, waits.waiter, now() + 60 * kSecond)) << (*task)->describe();
    EXPECT_EQ((*task)->poll(), Task::State::kDone) << (*task)->status();
    (*task)->freeze();
    progress.run_deferred();
    task->reset();
    progress.run_deferred();
  }
  if (!part.is_shared) {
    EXPECT_EQ(part.in, part.original) << "the input was written to";
  }
  if (part.op.output == nullptr) return;
  const Floats wanted = expected(work, number);
  const Floats result = part.result();
  ASSERT_EQ(result.size(), wanted.size());
  const size_t first = reference::first_difference(result, wanted);
  ASSERT_EQ(first, wanted.size()) << "element " << first;
}

using Way = std::pair<Collective, ScheduleKind>;
const Way kWays[] = {
    {Collective::kAllgather, ScheduleKind::kRing},
    {Collective::kAllgather, ScheduleKind::kBruck},
    {Collective::kAllgather, ScheduleKind::kDirect},
    {Collective::kReduceScatter, ScheduleKind::kRing},
    {Collective::kReduceScatter, ScheduleKind::kHalvingDoubling},
    {Collective::kReduceScatter, ScheduleKind::kDirect},
    {Collective::kAlltoall, ScheduleKind::kDirect},
    {Collective::kAlltoall, ScheduleKind::kPairwise},
    {Collective::kGather, ScheduleKind::kTree},
    {Collective::kGather, ScheduleKind::kDirect},
    {Collective::kScatter, ScheduleKind::kTree},
    {Collective::kScatter, ScheduleKind::kDirect},
};

class BlocksTest : public ::testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  size_t size() const { return static_cast<size_t>(std::get<1>(GetParam())); }
  Exchange work(const Counts& counts) {
    const auto [collective, schedule] = std::get<0>(GetParam());
    return {.collective = collective, .schedule = schedule, .counts = counts, .tag = ++tag_};
  }
  // Runs the collective in place and not, from or to several roots.
  void run_on_all(World& world, const Counts& counts) {
    std::vector<Exchange> works;
    const bool is_alltoall = std::get<0>(GetParam()).first == Collective::kAlltoall;
    for (const bool in_place : {false, true}) {
      if (in_place && is_alltoall) continue;  // the context copies its input
      for (const int root : {0, static_cast<int>(size()) / 2, static_cast<int>(size()) - 1}) {
        works.push_back(work(counts));
        works.back().in_place = in_place;
        works.back().root = root;
        if (!works.back().is_rooted()) break;
      }
    }
    on_all_ranks(world, [&](Rank& rank) {
      for (const Exchange& each : works) run(rank, each);
    });
  }

 private:
  uint32_t tag_ = 0;
};

TEST_P(BlocksTest, EqualBlocks) {
  World world(static_cast<int>(size()));
  for (const size_t count : {0, 17, 50'000}) run_on_all(world, Counts(size(), count));
}

TEST_P(BlocksTest, UnequalBlocks) {
  World world(static_cast<int>(size()));
  Counts counts(size());
  for (size_t i = 0; i < size(); ++i) counts[i] = i % 3 == 1 ? 0 : 1 + 7001 * i;
  const bool is_alltoall = std::get<0>(GetParam()).first == Collective::kAlltoall;
  run_on_all(world, counts);
  for (size_t only = 0; only < size() && !is_alltoall; only += std::max<size_t>(1, size() / 2)) {
    Counts one(size());
    one[only] = 5000;
    run_on_all(world, one);
  }
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<Way, int>>& test) {
  const auto& [way, size] = test.param;
  std::string name =
      absl::StrCat(traits(way.first).name, "_", schedule_name(way.second), "_", size);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Ways, BlocksTest,
                         ::testing::Combine(::testing::ValuesIn(kWays),
                                            ::testing::Values(1, 2, 3, 4, 5, 7, 8, 13)),
                         name_of_case);

// All blocks are equal.
class BruckAlltoallTest : public BlocksTest {};

TEST_P(BruckAlltoallTest, EqualBlocks) {
  World world(static_cast<int>(size()));
  for (const size_t count : {0, 1, 17, 50'000}) run_on_all(world, Counts(size(), count));
}

INSTANTIATE_TEST_SUITE_P(Sizes, BruckAlltoallTest,
                         ::testing::Combine(::testing::Values(Way(Collective::kAlltoall,
                                                                  ScheduleKind::kBruck)),
                                            ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 13, 16)),
                         name_of_case);

TEST(ReduceScatter, AveragesAndLargeBlocks) {
  World world(4);
  uint32_t tag = 0;
  for (const ScheduleKind schedule :
       {ScheduleKind::kRing, ScheduleKind::kHalvingDoubling, ScheduleKind::kDirect}) {
    const Exchange work{.collective = Collective::kReduceScatter,
                        .schedule = schedule,
                        .counts = Counts(4, 700'001),
                        .tag = ++tag,
                        .operation = ReduceOperation::kAverage};
    on_all_ranks(world, [&](Rank& rank) { run(rank, work); });
  }
}

}  // namespace
}  // namespace nezha
