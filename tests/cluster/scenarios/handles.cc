// SPDX-License-Identifier: Apache-2.0
// Operations that run while their caller does other things, or cancels them.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/scenarios/scenario.h"
#include "nezha/errors.h"

namespace nezha::scenarios {
namespace {

void many_in_flight(World& world) {
  const auto context = world.join();
  std::vector<Vector> vectors;
  std::vector<nezha::Handle> handles;
  vectors.reserve(60);
  handles.reserve(60);
  for (int i = 0; i < 60; ++i) vectors.emplace_back(world, kSizes[i % 5], i);
  for (int i = 0; i < 60; ++i) {
    handles.push_back(vectors[static_cast<size_t>(i)].start(context, static_cast<uint32_t>(i % 3)));
  }
  for (size_t i = handles.size(); i > 0; --i) handles[i - 1].wait();
  for (size_t i = 0; i < handles.size(); ++i) {
    check(handles[i].test() && handles[i].error() == nullptr, "it is not over, or failed");
    vectors[i].check_sum();
  }
}

// Nobody waits, so the library's own thread does everything.
void nobody_waits(World& world) {
  const auto context = world.join();
  for (int i = 0; i < 20; ++i) {
    Vector vector(world, kSizes[i % 5], i);
    const nezha::Handle handle = vector.start(context, 1);
    await_end(handle);
    check(handle.error() == nullptr, "it failed");
    vector.check_sum();
  }
}

// Giving up a wait does not harm the operation.
void patience(World& world) {
  const auto context = world.join();
  Vector vector(world, 1000, 1);
  if (world.rank == 1) world.await("impatient");
  nezha::Handle handle = vector.start(context, 1);
  if (world.rank == 0) {
    check(!handle.wait(milliseconds(20)), "over without rank 1");
    check(!handle.test(), "over without rank 1");
    world.tell("impatient");
  }
  check(handle.wait(kPatience), "it never ends");
  vector.check_sum();
}

// When rank 1 comes, it learns that rank 0 has cancelled the operation.
void check_given_up(World& world, const std::function<void(nezha::Handle)>& give_up) {
  auto context = world.join();
  Vector first(world, 10, 0);
  first.start(context, 1).wait();
  Vector vector(world, 500'000, 1);
  if (world.rank != 0) {
    world.await("given up");
    const std::string text = thrown<nezha::IoError>([&] { vector.start(context, 1).wait(); });
    check_mentions(text, "rank 0");
    return;
  }
  give_up(vector.start(context, 1));
  check(vector.is_untouched(), "the memory was written to");
  world.tell("given up");
  const std::string text = thrown<nezha::IoError>([&] { vector.start(context, 2).wait(); });
  check_mentions(text, "cancelled");
}

void dropped(World& world) {
  check_given_up(world, [](const nezha::Handle&) {});
}

void cancelled(World& world) {
  check_given_up(world, [](nezha::Handle handle) {
    handle.cancel();
    check(handle.test(), "not over");
    check(handle.error() != nullptr, "no error");
    check_mentions(thrown<nezha::IoError>([&] { handle.wait(); }), "cancelled");
  });
}

void context_destroyed(World& world) {
  auto context = world.join();
  Vector first(world, 10, 0);
  first.start(context, 1).wait();
  Vector vector(world, 500'000, 1);
  if (world.rank != 0) {
    world.await("destroyed");
    const std::string text = thrown<nezha::IoError>([&] { vector.start(context, 1).wait(); });
    check_mentions(text, "rank 0");
    return;
  }
  nezha::Handle handle = vector.start(context, 1);
  context.reset();
  check(handle.test(), "not over");
  check(vector.is_untouched(), "the memory was written to");
  check_mentions(thrown<nezha::IoError>([&] { handle.wait(); }), "context was destroyed");
  world.tell("destroyed");
}

// The deadline belongs to the operation.
void deadline(World& world) {
  const auto context = world.join();
  Vector first(world, 10, 0);
  first.start(context, 1).wait();
  // A short vector is sent completely before rank 1 asks for it, so its operation might succeed.
  Vector vector(world, 500'000, 1);
  if (world.rank == 1) {
    world.await("timed out");
    check_mentions(thrown<nezha::IoError>([&] { vector.start(context, 1).wait(); }), "rank 0");
    return;
  }
  nezha::Handle handle = vector.start(context, 1, milliseconds(100));
  await_end(handle);
  check_mentions(thrown<nezha::TimeoutError>([&] { handle.wait(); }), "rank 1");
  world.tell("timed out");
}

// The operations start before the peers' records exist; they wait, in order.
void early_start(World& world) {
  if (world.rank == 1) world.await("started");
  const auto context = world.join();
  std::vector<Vector> vectors;
  std::vector<nezha::Handle> handles;
  vectors.reserve(5);
  handles.reserve(5);
  for (int i = 0; i < 5; ++i) vectors.emplace_back(world, kSizes[i], i);
  for (auto& vector : vectors) handles.push_back(vector.start(context, 1));
  if (world.rank == 0) {
    check(!handles.front().test(), "over without rank 1");
    world.tell("started");
  }
  for (auto& handle : handles) handle.wait();
  for (const auto& vector : vectors) vector.check_sum();
}

// The end of an operation is reported once, however it ends.
void notified(World& world) {
  auto context = world.join();
  std::atomic<int> told{0};
  const auto tell = [&told] { ++told; };
  const auto await_told = [&told](int times) {
    const auto limit = Clock::now() + kPatience;
    while (told < times) {
      check(Clock::now() < limit, "it is never told");
      std::this_thread::yield();
    }
    check(told == times, "it is told too often");
  };
  const auto refusal = [&](nezha::Handle& handle, const std::function<void()>& function) {
    return thrown<nezha::InvalidArgument>([&] { handle.notify(function); });
  };
  if (world.rank == 1) world.await("notified");
  Vector vector(world, 300'001, 1);
  nezha::Handle handle = vector.start(context, 1);
  handle.notify(tell);
  check(world.rank == 1 || told == 0, "it is told too early");
  check_mentions(refusal(handle, tell), "has a function");
  check_mentions(refusal(handle, nullptr), "null");
  if (world.rank == 0) world.tell("notified");
  await_told(1);  // nobody waits
  check(handle.test() && handle.error() == nullptr, "it is told, and not over");
  vector.check_sum();
  check_mentions(refusal(handle, tell), "has a function");

  Vector second(world, 1000, 2);
  nezha::Handle over = second.start(context, 1);
  over.wait();
  over.notify(tell);
  check(told == 2, "what is over is not told at once");

  Vector never(world, 1000, 3);
  nezha::Handle failed = never.start(context, static_cast<uint32_t>(5 + world.rank));
  failed.notify(tell);
  if (world.rank == 0) {
    world.await("doomed");
    check(told == 2, "it is told too early");
    context.reset();
  } else {
    world.tell("doomed");
    check(!thrown<nezha::IoError>([&] { failed.wait(); }).empty(), "it has not failed");
  }
  await_told(3);
  check(failed.error() != nullptr, "it has no error");
}

// The context is destroyed while it asks the store for a peer.
void destroyed_early(World& world) {
  if (world.rank == 1) return;
  auto context = world.join();
  Vector vector(world, 1000, 1);
  nezha::Handle handle = vector.start(context, 1);
  context.reset();
  check_mentions(thrown<nezha::IoError>([&] { handle.wait(); }), "context was destroyed");
}

}  // namespace

Scenarios of_handles() {
  return {{"many-in-flight", many_in_flight},
          {"nobody-waits", nobody_waits},
          {"patience", patience},
          {"dropped", dropped},
          {"cancelled", cancelled},
          {"context-destroyed", context_destroyed},
          {"deadline", deadline},
          {"early-start", early_start},
          {"notified", notified},
          {"destroyed-early", destroyed_early}};
}

}  // namespace nezha::scenarios
