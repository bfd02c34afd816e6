// SPDX-License-Identifier: Apache-2.0
// Processes that run out of threads and descriptors.

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "cluster/scenarios/scenario.h"
#include "nezha/errors.h"
#include "nezha/redis_store.h"

namespace nezha::scenarios {
namespace {

// Limits a resource of this process during its own lifetime.
class Limit {
 public:
  Limit(__rlimit_resource resource, rlim_t most) : resource_(resource) {
    check(getrlimit(resource_, &before_) == 0, "getrlimit fails");
    const rlimit now{most, before_.rlim_max};
    check(setrlimit(resource_, &now) == 0, "setrlimit fails");
  }
  ~Limit() { setrlimit(resource_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

// The kernel does not limit the threads of root or of processes that may raise limits. The process
// gives up these rights, and keeps those that it needs for root's files.
void heed_the_limit_of_threads() {
  constexpr uid_t kNobodyElse = 61'234;
  // This fails only if root of a user namespace calls it; there the limit counts anyway.
  static_cast<void>(setresuid(kNobodyElse, geteuid(), geteuid()));
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2];
  check(syscall(SYS_capget, &header, data) == 0, "capget fails");
  data[0].effective &= ~(1U << CAP_SYS_RESOURCE | 1U << CAP_SYS_ADMIN);
  check(syscall(SYS_capset, &header, data) == 0, "capset fails");
}

// Checks that `f` throws an IoError that is no timeout and names the limit.
void check_says(const std::string& limit, const std::function<void()>& f) {
  std::string what;
  try {
    f();
  } catch (const nezha::TimeoutError& error) {
    check(false, std::string("a timeout: ") + error.what());
  } catch (const nezha::IoError& error) {
    what = error.what();
  }
  check_mentions(what, limit);
}

void no_threads(World& world) {
  const std::string limit = "ulimit -u";
  if (world.rank == 1) {
    heed_the_limit_of_threads();
    const Limit none(RLIMIT_NPROC, 1);
    check_says(limit, [&] { world.join_again("none"); });
    check_says(limit, [] { nezha::RedisStore("redis://localhost:1"); });
  } else {
    const std::string text =
        thrown<nezha::IoError>([&] { check_works(world.join_again("none"), 1); });
    check_mentions(text, "rank 1 cannot join");
    check_mentions(text, limit);
  }
  check_works(world.join_again("enough"), 2);
}

// Tries each number of descriptors that is too small, so that each descriptor is once the missing
// one. The other rank learns of it.
void no_descriptors(World& world) {
  constexpr int kOfTheStore = 1;
  if (world.rank == 0) {
    // With fewer descriptors, the store could not be told anything.
    std::string text = "ulimit -n";
    for (int left = kOfTheStore; !text.empty(); ++left) {
      text =
          thrown<nezha::IoError>([&] { check_works(world.join_again(std::to_string(left)), 1); });
      // Rank 1 may give up when rank 0 has its addresses already. What rank 0 then learns is that
      // rank 1 takes no connections.
      const bool has_reason = text.find("ulimit -n") != std::string::npos ||
                              text.find("no connection to rank 1") != std::string::npos;
      check(text.empty() || has_reason, "no reason: " + text);
    }
    return;
  }
  const int next = dup(0);
  close(next);
  int left = kOfTheStore;
  for (bool is_enough = false; !is_enough; ++left) {
    const Limit few(RLIMIT_NOFILE, static_cast<rlim_t>(next + left));
    try {
      const Context context = world.join_again(std::to_string(left));
      check_works(context, 1);
      is_enough = true;
    } catch (...) {
      check_says("ulimit -n", [] { throw; });
    }
  }
  check(left > kOfTheStore + 3, "it does without descriptors");
}

}  // namespace

Scenarios of_shortage() { return {{"no-threads", no_threads}, {"no-descriptors", no_descriptors}}; }

}  // namespace nezha::scenarios
