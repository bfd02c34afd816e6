// SPDX-License-Identifier: Apache-2.0
// Reduce, broadcast and barrier.

#include <chrono>
#include <string>
#include <vector>

#include "cluster/scenarios/scenario.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/errors.h"
#include "nezha/reduce.h"

namespace nezha::scenarios {
namespace {

// Rank 0 knows when rank 1 comes.
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

// Among others in flight, with and without an input or an output of its own.
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

}  // namespace

Scenarios of_rooted_collectives() {
  return {{"barrier", barrier},
          {"rooted", rooted},
          {"roots-that-differ", roots_that_differ},
          {"roots-that-differ-large", roots_that_differ_large}};
}

}  // namespace nezha::scenarios
