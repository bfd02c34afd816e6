// SPDX-License-Identifier: Apache-2.0
#include "common/cpus.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

TEST(Cpus, ListsAreAsTheKernelWritesThem) {
  EXPECT_EQ(*parse_cpus("0"), (Cpus{0}));
  EXPECT_EQ(*parse_cpus("0-3,8"), (Cpus{0, 1, 2, 3, 8}));
  EXPECT_EQ(*parse_cpus("8,2-4,3-5,8191"), (Cpus{2, 3, 4, 5, 8, 8191}));
  for (const std::string list : {"0", "0-3,8", "1,3,5", "2-5,8,8190-8191"}) {
    EXPECT_EQ(to_string(*parse_cpus(list)), list);
  }
  EXPECT_EQ(to_string({}), "");
}

TEST(Cpus, OtherListsAreRefusedAndNamed) {
  for (const std::string bad : {"", ",", "0,", "a", "-1", "1-", "3-1", "0-1-2", "+1", " 1", "0x1",
                                "8192", "0-8192", "99999999999999999999"}) {
    const auto cpus = parse_cpus(bad);
    EXPECT_TRUE(absl::IsInvalidArgument(cpus.status())) << bad;
    EXPECT_TRUE(absl::StrContains(cpus.status().message(), "'" + bad + "'")) << cpus.status();
  }
}

// A thread that waits until it may end.
class Idle {
 public:
  ~Idle() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  pthread_t handle() { return thread_.native_handle(); }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_{[this] {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return over_; });
  }};
};

TEST(Cpus, AThreadIsBoundToThem) {
  const Cpus all = allowed_cpus();
  ASSERT_FALSE(all.empty());
  Idle idle;
  const Cpus last{*all.rbegin()};
  EXPECT_TRUE(bind_thread(idle.handle(), last).ok());
  cpu_set_t bound;
  ASSERT_EQ(pthread_getaffinity_np(idle.handle(), sizeof bound, &bound), 0);
  EXPECT_EQ(CPU_COUNT(&bound), 1);
  EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(*last.begin()), &bound));
  EXPECT_EQ(allowed_cpus(), all) << "this thread keeps its own CPUs";
}

TEST(Cpus, TheErrorNamesMissingAndExistingCpus) {
  Idle idle;
  const int one = *allowed_cpus().begin();
  for (const Cpus& cpus : {Cpus{8191}, Cpus{one, 8191}}) {
    const absl::Status status = bind_thread(idle.handle(), cpus);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), to_string(cpus))) << status;
    // The message lists all CPUs of this process, which include those of this thread.
    const auto told = parse_cpus(status.message().substr(status.message().rfind(' ') + 1));
    ASSERT_TRUE(told.ok()) << status;
    for (const int cpu : allowed_cpus()) EXPECT_TRUE(told->contains(cpu)) << status;
    EXPECT_FALSE(told->contains(8191));
  }
}

}  // namespace
}  // namespace nezha
