// SPDX-License-Identifier: Apache-2.0
// Ranks that cannot join.

#include <chrono>
#include <exception>
#include <map>
#include <string>
#include <thread>

#include "cluster/scenarios/scenario.h"
#include "nezha/errors.h"

namespace nezha::scenarios {
namespace {

// A rank with a bad timeout fails, and the other rank learns the reason.
void bad_timeout(World& world) {
  constexpr const char* kReason = "the timeout is -5 ms";
  if (world.rank == 0) {
    check_mentions(thrown<nezha::InvalidArgument>([&] { world.join(milliseconds(-5)); }), kReason);
    world.tell("refused");
    world.await("heard");
    return;
  }
  world.await("refused");
  const std::string text = thrown<nezha::IoError>([&] { world.join(); });
  check_mentions(text, "rank 0 cannot join");
  check_mentions(text, kReason);
  world.tell("heard");
}

// A rank whose number is out of range or missing fails, and the other rank learns the reason.
void bad_ranks(World& world) {
  const std::map<int, std::string> bad = {{2, "there is no rank 2 in a context of 2 ranks"},
                                          {-1, "the rank is not known"}};
  for (const auto& [rank, why] : bad) {
    const std::string name = "bad" + std::to_string(rank);
    if (world.rank == 1) {
      const Place place{rank, 2};
      check_mentions(thrown<nezha::InvalidArgument>([&] { world.join_as(place, name); }), why);
      continue;
    }
    const auto context = world.join_as({world.rank, world.size}, name);
    Vector vector(world, 1000, 1);
    const std::string text = thrown<nezha::IoError>([&] { vector.start(context, 1).wait(); });
    check_mentions(text, rank < 0 ? "a rank (pid " : "rank 2 cannot join: ");
    check_mentions(text, "cannot join: " + why);
  }
}

// Ranks 1 and 2 are threads of one process. The second of them is refused, and the others learn of
// it.
void two_ranks_in_one_process(World& world) {
  const auto error_of = [&](int rank) {
    return thrown<std::exception>([&] {
      const Place place{rank, 3};
      Vector vector(place, 1000, 1);
      vector.start(world.join_as(place, "three"), 1).wait();
    });
  };
  constexpr const char* kWhy = " has a rank of the context already";
  if (world.rank == 0) {
    const std::string text = error_of(0);
    check_mentions(text, "cannot join: pid ");
    return check_mentions(text, kWhy);
  }
  std::string one, other;
  std::thread thread([&] { one = error_of(1); });
  other = error_of(2);
  thread.join();
  const std::string cannot_join = "cannot join";
  const bool one_learns = one.find(cannot_join) != std::string::npos;
  const bool other_learns = other.find(cannot_join) != std::string::npos;
  check(one_learns != other_learns, "who was refused? " + one + "; " + other);
  check_mentions(one, kWhy);
  check_mentions(other, kWhy);
}

// Rank 1 cannot join a further context of ranks that are already connected. With recursive doubling
// rank 2 needs nothing from rank 1. It learns of the failure from the others, whether it waits for
// them or comes after they have closed the context.
void a_further_context(World& world) {
  const Context first = world.join();
  check_works(first, 1);
  for (const bool is_late : {false, true}) {
    const std::string name = is_late ? "late" : "prompt";
    if (world.rank == 1) {
      const std::string text =
          thrown<nezha::InvalidArgument>([&] { world.join_by("tcp:nowhere", name); });
      check_mentions(text, "nowhere");
    } else {
      Context next = world.join_again(name);
      if (is_late && world.rank == 2) {
        for (const int other : {0, 3}) world.await("failed-" + std::to_string(other));
      }
      const std::string text = thrown<nezha::IoError>([&] { check_works(next, 2); });
      check_mentions(text, "rank 1 cannot join");
      check_mentions(text, "nowhere");
      next.reset();
      if (is_late) world.tell("failed-" + std::to_string(world.rank));
    }
    check_works(first, 3);  // this context is not affected
  }
}

}  // namespace

Scenarios of_joining() {
  return {{"bad-timeout", bad_timeout},
          {"bad-ranks", bad_ranks},
          {"a-further-context", a_further_context},
          {"two-ranks-in-one-process", two_ranks_in_one_process}};
}

}  // namespace nezha::scenarios
