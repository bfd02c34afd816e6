// SPDX-License-Identifier: Apache-2.0
// Reduce, broadcast and barrier.

#include <chrono>
#include <string>
#include <vector>

#include "cluster/scenarios/scenario.h"
#include "nezha/algorithm.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/errors.h"
#include "nezha/reduce.h"
#include "nezha/types.h"

namespace nezha::scenarios {
namespace {

// Rank 0 learns when rank 1 enters.
void barrier(World& world) {
  const auto context = world.join();
  const nezha::BarrierOptions options(context);
  nezha::barrier(options);
  if (world.rank == 1) {
    world.await("waiting");
    return nezha::barrier(options);
  }
  nezha::Handle handle = nezha::barrierAsync(options);
  check(!handle.wait(milliseconds(50)), "over without rank 1");
  world.tell("waiting");
  handle.wait();
}

// Runs these among other operations, with and without an input or output of their own.
void rooted(World& world) {
  const auto context = world.join();
  for (const size_t elements : kSizes) {
    for (int root = 0; root < world.size; ++root) {
      const bool is_root = world.rank == root;
      const Vector input(world, elements, 1);
      Vector sum(world, elements, 1), copy(world, elements, root + 2), other(world, elements, 3);
      const std::vector<float> roots_own = copy.values;
      nezha::Handle allreduce = other.start(context, 3);

      nezha::ReduceOptions reduce(context);
      reduce.setRoot(root);
      reduce.setTag(1);
      if (!is_root) reduce.setInput(input.values.data(), elements);
      if (is_root) reduce.setOutput(sum.values.data(), elements);
      nezha::Handle reduced = nezha::reduceAsync(reduce);

      nezha::BroadcastOptions broadcast(context);
      broadcast.setRoot(root);
      broadcast.setTag(2);
      if (is_root) broadcast.setInput(input.values.data(), elements);
      if (!is_root || root == 0) broadcast.setOutput(copy.values.data(), elements);
      nezha::broadcast(broadcast);
      reduced.wait();
      allreduce.wait();

      check(input.is_untouched(), "the input was written to");
      if (is_root) sum.check_sum();
      other.check_sum();
      const bool has_copy = !is_root || root == 0;
      check(copy.values == (has_copy ? input.of(root) : roots_own), "the copy is wrong");
    }
  }
}

void check_roots_that_differ(World& world, size_t elements) {
  const auto context = world.join();
  Vector vector(world, elements, 1);
  nezha::BroadcastOptions options(context);
  options.setOutput(vector.values.data(), elements);
  options.setRoot(world.rank);
  const std::string text = thrown<nezha::IoError>([&] { nezha::broadcast(options); });
  check_mentions(text, "broadcast from rank 0");
  check_mentions(text, "broadcast from rank 1");
}

void roots_that_differ(World& world) { check_roots_that_differ(world, 1); }
void roots_that_differ_large(World& world) { check_roots_that_differ(world, 300'000); }

// A reduce by each algorithm, with two inputs whose type is given at run time, in place at the
// root.
void reduces_each_way(World& world) {
  const auto context = world.join();
  for (const auto algorithm : {Algorithm::kTree, Algorithm::kRing, Algorithm::kDirect}) {
    for (const size_t elements : kSizes) {
      const Vector input(world, elements, 1);
      Vector sum(world, elements, 1);
      const int root = world.size - 1;
      nezha::ReduceOptions options(context);
      options.setRoot(root);
      options.setAlgorithm(algorithm);
      options.setInputs(DataType::kFloat32, {input.values.data(), sum.values.data()}, elements);
      options.setOutput(DataType::kFloat32, sum.values.data(), elements);
      nezha::reduce(options);
      check(input.is_untouched(), "an input was written to");
      if (world.rank == root) sum.check_sum(2);
    }
  }
}

// The result has the bits of a reproducible allreduce, whichever rank is the root. With these
// values, another order of summation would give other bits.
void reduces_reproducibly(World& world) {
  const auto context = world.join();
  for (const size_t elements : kSizes) {
    std::vector<float> input(elements), wanted(elements), sum(elements);
    for (size_t i = 0; i < elements; ++i) {
      input[i] = 1.0F / static_cast<float>(i + 3 + static_cast<size_t>(world.rank) * 7919);
    }
    nezha::AllreduceOptions all(context);
    all.setInput(input.data(), elements);
    all.setOutput(wanted.data(), elements);
    all.setReproducible(true);
    nezha::allreduce(all);
    for (int root = 0; root < world.size; ++root) {
      nezha::ReduceOptions options(context);
      options.setRoot(root);
      options.setReproducible(true);
      options.setInput(input.data(), elements);
      options.setOutput(sum.data(), elements);
      nezha::reduce(options);
      if (world.rank == root) check(sum == wanted, "the bits are others than an allreduce's");
    }
    nezha::ReduceOptions ring(context);
    ring.setRoot(0);
    ring.setReproducible(true);
    ring.setAlgorithm(Algorithm::kRing);
    ring.setOutput(sum.data(), elements);
    check_mentions(thrown<nezha::InvalidArgument>([&] { nezha::reduce(ring); }), "reproducible");
  }
}

// A type without addition.
struct Item {
  char name[5];
  bool is_new;
  bool operator==(const Item&) const = default;
};

void broadcasts_each_way(World& world) {
  const auto context = world.join();
  const int root = world.size - 1;
  for (const auto algorithm : {Algorithm::kTree, Algorithm::kRing}) {
    for (const size_t elements : kSizes) {
      std::vector<Item> sent(elements);
      for (size_t i = 0; i < elements; ++i) {
        for (char& letter : sent[i].name) letter = static_cast<char>('a' + i % 26);
        sent[i].is_new = i % 3 == 0;
      }
      std::vector<Item> items(elements);
      if (world.rank == root) items = sent;
      nezha::BroadcastOptions options(context);
      options.setRoot(root);
      options.setAlgorithm(algorithm);
      options.setOutput(items.data(), elements);
      nezha::broadcast(options);
      check(items == sent, "the items are wrong");

      std::vector<double> numbers(elements, world.rank);
      options.setOutput(DataType::kFloat64, numbers.data(), elements);
      nezha::broadcast(options);
      check(numbers == std::vector<double>(elements, root), "the numbers are wrong");
    }
  }
  nezha::BroadcastOptions direct(context);
  std::vector<double> numbers(10);
  direct.setRoot(0);
  direct.setOutput(numbers.data(), numbers.size());
  direct.setAlgorithm(Algorithm::kDirect);
  check_mentions(thrown<nezha::InvalidArgument>([&] { nezha::broadcast(direct); }),
                 "it cannot use the algorithm direct, but only tree or ring");
}

}  // namespace

Scenarios of_rooted_collectives() {
  return {{"barrier", barrier},
          {"rooted", rooted},
          {"reduces-each-way", reduces_each_way},
          {"reduces-reproducibly", reduces_reproducibly},
          {"broadcasts-each-way", broadcasts_each_way},
          {"roots-that-differ", roots_that_differ},
          {"roots-that-differ-large", roots_that_differ_large}};
}

}  // namespace nezha::scenarios
