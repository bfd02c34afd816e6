// SPDX-License-Identifier: Apache-2.0
// Children of fork().

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>

#include "cluster/scenarios/connections.h"
#include "cluster/scenarios/scenario.h"
#include "nezha/allreduce.h"
#include "nezha/errors.h"

namespace nezha::scenarios {
namespace {

// A child process that runs `part`.
class Child {
 public:
  // `part` returns the exit status, or does not return.
  explicit Child(const std::function<int()>& part) : pid_(fork()) {
    if (pid_ != 0) return;
    try {
      _exit(part());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
      _exit(1);
    }
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Waits for the child; returns its status as waitpid does.
  int end() {
    const auto limit = Clock::now() + kPatience;
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      check(Clock::now() < limit, "the child never ends");
      std::this_thread::sleep_for(milliseconds(1));
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

// While operations run, one child after the other inherits them and does with them what harmless
// children do.
void harmless_children(World& world) {
  // Static, so that exit() also destroys it.
  static Context context = world.join();
  static nezha::Handle finished;
  check_works(context, 1);
  Vector first(world, 1000, 2);
  finished = first.start(context, 2);
  finished.wait();
  std::atomic<bool> through{false};
  std::string trouble;
  // Operations run until both ranks are done, so that a fork may find any lock held.
  std::thread busy([&] {
    trouble = thrown<std::exception>([&] {
      for (int i = 0, ranks_through = 0; ranks_through < world.size; ++i) {
        check_works(context, i, kSizes[i % 4]);
        ranks_through = through ? 1 : 0;
        nezha::AllreduceOptions options(context);
        options.setOutput(&ranks_through, 1);
        options.setTag(2);
        nezha::allreduce(options);
      }
    });
  });
  for (int i = 0; i < 30; ++i) {
    Vector vector(world, 100'000, i);
    nezha::Handle handle = vector.start(context, 3);
    Child child([&]() -> int {
      if (i % 3 == 0) return 0;
      if (i % 3 == 1) std::exit(0);
      handle = nezha::Handle();
      finished = nezha::Handle();
      context.reset();
      return 0;
    });
    check(child.end() == 0, "a child has failed");
    handle.wait();
    vector.check_sum();
  }
  through = true;
  busy.join();
  check(trouble.empty(), trouble);
  check_works(context, 3);
  finished = nezha::Handle();
  context.reset();
}

// The child's calls on inherited objects are refused; then it creates a context of its own.
void children_with_contexts(World& world) {
  const Context context = world.join();
  check_works(context, 1);
  Vector vector(world, kLarge, 2);
  nezha::Handle handle = vector.start(context, 1);
  Child child([&] {
    const auto refused = [](const std::function<void()>& call) {
      check_mentions(thrown<nezha::InvalidArgument>(call), "fork()");
    };
    refused([&] { handle.test(); });
    refused([&] { handle.wait(); });
    refused([&] { handle.error(); });
    refused([&] { handle.cancel(); });
    refused([&] { check_works(context, 1); });
    refused([&] { context->dup(); });
    refused([&] { context->rails(); });
    check(context->rank() == world.rank && context->size() == world.size, "who am I?");
    check(connections() == 0, "it has kept connections");
    const Context own = world.join_again("again");
    for (int i = 0; i < 5; ++i) check_works(own, i, kLarge);
    return 0;
  });
  handle.wait();
  vector.check_sum();
  check(child.end() == 0, "the child has failed");
  check_works(context, 3);
}

// The other rank notices that a rank was killed, although that rank leaves children behind.
void killed_with_children(World& world) {
  if (world.rank == 0) {
    const Context context = world.join();
    check_works(context, 1);
    const std::string text = thrown<nezha::IoError>([&] { check_works(context, 2, kLarge); });
    check_mentions(text, "rank 1");
    check(text.find("was not complete") == std::string::npos, "not noticed: " + text);
    world.tell("missed");
    return;
  }
  std::array<int, 2> pipe_ends{};
  check(pipe(pipe_ends.data()) == 0, "no pipe");
  Child rank([&]() -> int {
    const Context context = world.join();
    check_works(context, 1);
    if (fork() == 0) {  // lives until the process that started the rank is done
      close(pipe_ends[1]);
      char nothing;
      _exit(read(pipe_ends[0], &nothing, 1) == 0 ? 0 : 1);
    }
    return raise(SIGKILL);
  });
  check(WIFSIGNALED(rank.end()), "it was not killed");
  world.await("missed");
}

}  // namespace

Scenarios of_forks() {
  return {{"harmless-children", harmless_children},
          {"children-with-contexts", children_with_contexts},
          {"killed-with-children", killed_with_children}};
}

}  // namespace nezha::scenarios
