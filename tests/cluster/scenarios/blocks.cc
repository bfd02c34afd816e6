// SPDX-License-Identifier: Apache-2.0
// The collectives whose vector consists of a block for each rank.

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cluster/scenarios/scenario.h"
#include "nezha/allgather.h"
#include "nezha/allreduce.h"
#include "nezha/alltoall.h"
#include "nezha/errors.h"
#include "nezha/gather.h"
#include "nezha/reduce_scatter.h"
#include "nezha/scatter.h"

namespace nezha::scenarios {
namespace {

template <typename Options, typename F>
void refused(const Context& context, F call, const std::string& what,
             const std::function<void(Options&)>& set) {
  Options options(context);
  set(options);
  check_mentions(thrown<nezha::InvalidArgument>([&] { call(options); }), what);
}

// The context still works after all of them.
void refused_blocks(World& world) {
  const auto context = world.join();
  const auto size = static_cast<size_t>(world.size);
  std::vector<float> data(40 * size);
  const auto allgather = [&](const std::string& what, auto set) {
    refused<nezha::AllgatherOptions>(context, nezha::allgather, what, set);
  };
  using Gathered = nezha::AllgatherOptions;
  allgather("there is no output", [&](Gathered& o) { o.setInput(data.data(), 10); });
  allgather("cannot be divided into equal blocks",
            [&](Gathered& o) { o.setOutput(data.data(), 10 * size + 1); });
  allgather("counts for 1 ranks",
            [&](Gathered& o) { o.setOutput(data.data(), std::vector<size_t>{10}); });
  allgather("the input has 9 elements", [&](Gathered& o) {
    o.setInput(data.data() + 20 * size, 9);
    o.setOutput(data.data(), 10 * size);
  });
  allgather("single block, which takes no counts", [&](Gathered& o) {
    o.setInput(data.data() + 20 * size, std::vector<size_t>(size, 10));
    o.setOutput(data.data(), 10 * size);
  });
  allgather("overlap", [&](Gathered& o) {
    o.setInput(data.data() + 10 * world.rank + 1, 10);
    o.setOutput(data.data(), 10 * size);
  });
  allgather("null pointer", [&](Gathered& o) { o.setOutput<float>(nullptr, 10 * size); });
  allgather("more than memory has", [&](Gathered& o) {
    o.setOutput(data.data(), std::vector<size_t>(size, size_t{1} << 61));
  });
  allgather("element types", [&](Gathered& o) {
    o.setInput(reinterpret_cast<const int*>(data.data() + 20 * size), 10);
    o.setOutput(data.data(), 10 * size);
  });
  allgather("only ring or bruck or direct", [&](Gathered& o) {
    o.setOutput(data.data(), 10 * size);
    o.setAlgorithm(nezha::Algorithm::kTree);
  });
  refused<nezha::ReduceScatterOptions>(context, nezha::reduceScatter,
                                       "direct, if it is reproducible", [&](auto& o) {
                                         o.setInput(data.data(), 10 * size);
                                         o.setOutput(data.data() + 20 * size, 10);
                                         o.setReproducible(true);
                                         o.setAlgorithm(nezha::Algorithm::kRing);
                                       });
  refused<nezha::AlltoallOptions>(
      context, nezha::alltoall, "only alltoallv takes counts",
      [&](auto& o) { o.setOutput(data.data(), std::vector<size_t>(size, 10)); });
  refused<nezha::AlltoallvOptions>(context, nezha::alltoallv, "sends itself", [&](auto& o) {
    o.setInput(data.data(), std::vector<size_t>(size, 9));
    o.setOutput(data.data() + 20 * size, std::vector<size_t>(size, 10));
  });
  refused<nezha::GatherOptions>(context, nezha::gather, "the root is rank -1", [&](auto& o) {
    o.setInput(data.data(), 10);
    o.setOutput(data.data() + 20 * size, 10 * size);
  });
  const std::string lacks =
      world.rank == 0 ? "there is no input; set one" : "there is no output; set one";
  refused<nezha::ScatterOptions>(context, nezha::scatter, lacks, [&](auto& o) { o.setRoot(0); });
  check_works(context, 3);
}

// One rank swaps the lengths of two other ranks' blocks, which no message shows by its size.
void other_counts(World& world) {
  const auto context = world.join();
  std::vector<size_t> counts(static_cast<size_t>(world.size), 1000);
  counts[0] = 3000;
  counts[1] = 2000;
  if (world.rank == 2) std::swap(counts[0], counts[1]);
  std::vector<float> all(std::accumulate(counts.begin(), counts.end(), size_t{0}));
  nezha::AllgatherOptions options(context);
  options.setOutput(all.data(), counts);
  options.setAlgorithm(nezha::Algorithm::kRing);
  // An operation may still succeed while the error of the first rank is in flight.
  const std::string text = thrown<nezha::IoError>([&] {
    for (int i = 0; i < 10; ++i) nezha::allgather(options);
  });
  check_mentions(text, "pass different counts to one allgather");
  check_mentions(text, "3000");
  // The rank that fails first stays until all ranks know the reason.
  world.tell("rank " + std::to_string(world.rank));
  for (int rank = 0; rank < world.size; ++rank) world.await("rank " + std::to_string(rank));
}

// A caller's struct, a bool, and a type that is known only at run time.
void other_elements(World& world) {
  struct Pair {
    uint8_t rank;
    uint16_t number;
  };
  const auto context = world.join();
  const auto size = static_cast<size_t>(world.size);
  const Pair own{static_cast<uint8_t>(world.rank), static_cast<uint16_t>(1000 + world.rank)};
  std::vector<Pair> all(size);
  nezha::AllgatherOptions gathered(context);
  gathered.setInput(&own, 1);
  gathered.setOutput(all.data(), size);
  nezha::allgather(gathered);
  for (size_t r = 0; r < size; ++r) {
    check(all[r].rank == r && all[r].number == 1000 + r, "a pair is wrong");
  }

  const bool is_last = world.rank == world.size - 1;
  bool was_last = false;
  const auto flags = std::make_unique<bool[]>(size);
  nezha::GatherOptions gather(context);
  gather.setRoot(0);
  gather.setInput(&is_last, 1);
  gather.setOutput(flags.get(), size);
  nezha::gather(gather);
  if (world.rank == 0) was_last = flags[size - 1] && (size == 1 || !flags[0]);
  check(world.rank != 0 || was_last, "a flag is wrong");

  std::vector<double> inputs(3 * size, world.rank + 1);
  std::vector<double> sum(3);
  nezha::ReduceScatterOptions scattered(context);
  scattered.setInput(nezha::DataType::kFloat64, inputs.data(), inputs.size());
  scattered.setOutput(nezha::DataType::kFloat64, sum.data(), sum.size());
  nezha::reduceScatter(scattered);
  const double expected = world.size * (world.size + 1) / 2.0;
  check(sum == std::vector<double>(3, expected), "a sum is wrong");
}

// A reproducible reduce_scatter and an allgather give the bits of a reproducible allreduce.
void halves(World& world) {
  const auto context = world.join();
  const auto size = static_cast<size_t>(world.size);
  for (const size_t elements : {1, 1000, 70'000}) {
    std::vector<float> input(elements * size);
    for (size_t i = 0; i < input.size(); ++i) {
      input[i] = static_cast<float>((i + 1) * static_cast<size_t>(world.rank * 7 + 1) % 9973) / 7;
    }
    std::vector<float> whole(input.size()), halves(input.size()), block(elements);
    nezha::AllreduceOptions allreduce(context);
    allreduce.setInput(input.data(), input.size());
    allreduce.setOutput(whole.data(), whole.size());
    allreduce.setReproducible(true);
    nezha::allreduce(allreduce);

    nezha::ReduceScatterOptions scatter(context);
    scatter.setInput(input.data(), input.size());
    scatter.setOutput(block.data(), block.size());
    scatter.setReproducible(true);
    nezha::reduceScatter(scatter);
    nezha::AllgatherOptions gather(context);
    gather.setInput(block.data(), block.size());
    gather.setOutput(halves.data(), halves.size());
    nezha::allgather(gather);
    check(whole == halves, "the bits differ");
  }
}

// The result is at the beginning of the input; also with a custom function.
void at_the_begin(World& world) {
  const auto context = world.join();
  const auto size = static_cast<size_t>(world.size);
  std::vector<size_t> counts(size);
  std::iota(counts.begin(), counts.end(), size_t{20'000});
  const size_t elements = std::accumulate(counts.begin(), counts.end(), size_t{0});
  const auto own = static_cast<size_t>(world.rank);
  const size_t before = std::accumulate(counts.begin(), counts.begin() + world.rank, size_t{0});
  std::vector<int64_t> data(elements);
  for (size_t i = 0; i < elements; ++i) data[i] = static_cast<int64_t>(i) + world.rank;
  nezha::ReduceScatterOptions options(context);
  options.setInput(data.data(), counts);
  options.setOutput(data.data(), counts[own]);
  options.setReduceFunction([](void* out, const void* a, const void* b, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      static_cast<int64_t*>(out)[i] =
          static_cast<const int64_t*>(a)[i] + static_cast<const int64_t*>(b)[i];
    }
  });
  nezha::reduceScatter(options);
  const int64_t ranks = world.size;
  for (size_t i = 0; i < counts[own]; ++i) {
    const int64_t sum = static_cast<int64_t>(before + i) * ranks + ranks * (ranks - 1) / 2;
    check(data[i] == sum, "element " + std::to_string(i) + " is wrong");
  }
}

// Several operations are in flight, and the waits have another order.
void blocks_in_flight(World& world) {
  const auto context = world.join();
  const auto size = static_cast<size_t>(world.size);
  constexpr int kOperations = 20;
  std::vector<std::vector<int>> sent(kOperations), received(kOperations);
  std::vector<nezha::Handle> handles;
  for (int k = 0; k < kOperations; ++k) {
    auto& out = sent[static_cast<size_t>(k)];
    for (int to = 0; to < world.size; ++to) out.push_back(10'000 * k + 100 * world.rank + to);
    received[static_cast<size_t>(k)].resize(size);
    nezha::AlltoallOptions options(context);
    options.setInput(out.data(), size);
    options.setOutput(received[static_cast<size_t>(k)].data(), size);
    options.setTag(static_cast<uint32_t>(k % 3));
    handles.push_back(nezha::alltoallAsync(options));
  }
  for (int k = kOperations - 1; k >= 0; --k) {
    handles[static_cast<size_t>(k)].wait();
    for (int from = 0; from < world.size; ++from) {
      const int expected = 10'000 * k + 100 * from + world.rank;
      check(received[static_cast<size_t>(k)][static_cast<size_t>(from)] == expected, "it is wrong");
    }
  }
}

}  // namespace

Scenarios of_blocks() {
  return {{"refused-blocks", refused_blocks}, {"other-counts", other_counts},
          {"other-elements", other_elements}, {"halves", halves},
          {"at-the-begin", at_the_begin},     {"blocks-in-flight", blocks_in_flight}};
}

}  // namespace nezha::scenarios
