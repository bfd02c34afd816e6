// SPDX-License-Identifier: Apache-2.0
// Several contexts in one process: created, split and duplicated.

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "cluster/scenarios/connections.h"
#include "cluster/scenarios/scenario.h"
#include "nezha/allreduce.h"
#include "nezha/context.h"
#include "nezha/errors.h"

namespace nezha::scenarios {
namespace {

void await_connections(size_t count) {
  const auto limit = Clock::now() + kPatience;
  while (connections() != count) {
    check(Clock::now() < limit, std::to_string(connections()) + " connections");
    std::this_thread::yield();
  }
}

// Contexts as Horovod makes them: one of all ranks, one of each host, and one of the ranks with the
// same place on their hosts; and a second one of all ranks that is created separately.
void horovods_contexts(World& world) {
  const Context global = world.join();
  const Context local = global->split(world.rank / 2, world.rank % 2);
  const Context cross = global->split(world.rank % 2, world.rank / 2);
  const Context again = world.join_again("again");
  check(local->size() == 2 && local->rank() == world.rank % 2, "local is wrong");
  check(cross->size() == 2 && cross->rank() == world.rank / 2, "cross is wrong");
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(4);
  for (size_t c = 0; c < errors.size(); ++c) {
    threads.emplace_back([&, c] {
      const Context& context = *std::array{&global, &local, &cross, &again}[c];
      try {
        for (int i = 0; i < 20; ++i) {
          Vector vector(place_in(context), kSizes[(i + c) % 4], i + 50 * static_cast<int>(c));
          nezha::AllreduceOptions options = vector.options(context, 1);
          options.setAlgorithm(nezha::Algorithm::kDirect);  // all ranks exchange with all
          nezha::allreduce(options);
          vector.check_sum();
        }
      } catch (...) {
        errors[c] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
  // There is one connection to each other rank on each of the two rails, and no more.
  await_connections(static_cast<size_t>(world.size - 1) * global->rails().size());
  global->dup();  // otherwise a rank that is done would close connections that others still count
}

void splits(World& world) {
  Context parent = world.join();
  const int last = world.size - 1;
  // By descending rank.
  const Context reversed = parent->split(5, -world.rank);
  check(reversed->size() == world.size && reversed->rank() == last - world.rank, "not reversed");
  check_works(reversed, 1);
  // Without the last rank.
  const int color = world.rank == last ? nezha::Context::kNoColor : 0;
  Context others = reversed->split(color, world.rank);
  check((others == nullptr) == (world.rank == last), "who has no color is in a context");
  if (others != nullptr) {
    check(others->size() == last && others->rank() == world.rank, "the order is wrong");
    check_works(others, 2, 100'000);
  }
  // Each rank by itself.
  const Context alone = parent->split(world.rank, 0);
  check(alone->size() == 1 && alone->rank() == 0, "not alone");
  check_works(alone, 3);
  // The copy outlives its parent, and some contexts outlive others that they were split from.
  const Context copy = parent->dup();
  parent.reset();
  check_works(copy, 4, 100'000);
  others.reset();
  const Context part = copy->split(world.rank % 2, 0);
  check_works(part, 5);
  check_works(copy, 6);
  check_works(reversed, 7);
}

// Ranks that are not connected yet connect at once for the new context.
void strangers(World& world) {
  for (int i = 0; i < 30; ++i) {
    const Context whole = world.join_again(std::to_string(i));
    // With recursive doubling, ranks 0 and 3 exchange no messages, and neither do 1 and 2.
    const Context part = whole->split(std::min(world.rank, 3 - world.rank), 0);
    check_works(part, i);
  }
}

// Both contexts use the same tag, in a different order on each rank.
void duplicates(World& world) {
  const Context one = world.join();
  const Context two = one->dup();
  check(two->rank() == one->rank() && two->size() == one->size(), "it is another group");
  check(two->timeout() == one->timeout(), "it has other options");
  for (int i = 0; i < 10; ++i) {
    Vector a(world, kSizes[i % 5], i), b(world, kSizes[(i + 1) % 5], 100 + i);
    const bool first = (world.rank + i) % 2 == 0;
    nezha::Handle x = first ? a.start(one, 1) : b.start(two, 1);
    nezha::Handle y = first ? b.start(two, 1) : a.start(one, 1);
    x.wait();
    y.wait();
    a.check_sum();
    b.check_sum();
  }
}

// If one context breaks, the other still works.
void broken_part(World& world) {
  const Context whole = world.join();
  const Context part = whole->dup();
  check_works(whole, 1);
  if (world.rank == 0) {
    Vector vector(world, kLarge, 2);
    vector.start(part, 1).cancel();
  }
  const std::string text = thrown<nezha::IoError>([&] { check_works(part, 2, kLarge); });
  check_mentions(text, "split from rank " + std::to_string(world.rank));
  check_mentions(text, "cancelled");
  check_mentions(thrown<nezha::IoError>([&] { part->dup(); }), "cancelled");
  check_works(whole, 4);
  check_works(whole->dup(), 5);
}

// A rank leaves instead of calling split().
void split_without_a_rank(World& world) {
  Context context = world.join();
  check_works(context, 1);
  if (world.rank == 0) return;
  check_mentions(thrown<nezha::IoError>([&] { context->split(0, 0); }), "rank 0");
}

}  // namespace

Scenarios of_several_contexts() {
  return {{"horovods-contexts", horovods_contexts},
          {"splits", splits},
          {"strangers", strangers},
          {"duplicates", duplicates},
          {"broken-part", broken_part},
          {"split-without-a-rank", split_without_a_rank}};
}

}  // namespace nezha::scenarios
