// SPDX-License-Identifier: Apache-2.0
#include "common/fork.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "gtest/gtest.h"

namespace nezha {
namespace {

// Returns whether `test` is true in a child of fork().
bool holds_in_a_child(const std::function<bool()>& test) {
  const pid_t child = fork();
  if (child == 0) _exit(test() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status == 0;
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(Fork, MarksWhatAChildInherits) {
  const ForkMark mark;
  EXPECT_FALSE(mark.is_inherited());
  EXPECT_TRUE(holds_in_a_child([&] {
    const ForkMark own;
    const bool grandchild = holds_in_a_child([&] { return own.is_inherited(); });
    return mark.is_inherited() && !own.is_inherited() && grandchild;
  }));
  EXPECT_FALSE(mark.is_inherited());
}

TEST(Fork, ChildrenCloseOurDescriptors) {
  const int ours = eventfd(0, EFD_CLOEXEC);
  const int others = eventfd(0, EFD_CLOEXEC);
  close_in_children(ours);
  EXPECT_TRUE(holds_in_a_child([&] { return !is_open(ours) && is_open(others); }));
  EXPECT_TRUE(is_open(ours));
  // After the close, another file may get the same number, also in the child, whose own children
  // then keep it open.
  EXPECT_TRUE(holds_in_a_child([&] {
    const int again = eventfd(0, EFD_CLOEXEC);
    return again == ours && holds_in_a_child([&] { return is_open(again); });
  }));
  close_ours(ours);
  EXPECT_FALSE(is_open(ours));
  const int again = eventfd(0, EFD_CLOEXEC);
  ASSERT_EQ(again, ours);
  EXPECT_TRUE(holds_in_a_child([&] { return is_open(again); }));
  close(again);
  close(others);
}

TEST(Fork, MakesOneForEachProcess) {
  static PerProcess<std::mutex> mutexes;
  std::mutex& first = mutexes.get();
  EXPECT_EQ(&mutexes.get(), &first);
  // The thread that holds the lock does not exist in the child, so nobody would unlock it there.
  const std::lock_guard lock(first);
  EXPECT_TRUE(holds_in_a_child([&] {
    const std::lock_guard own(mutexes.get());
    return &mutexes.get() != &first;
  }));
  EXPECT_EQ(&mutexes.get(), &first);
}

// fork() waits for threads that are opening or closing descriptors, and they wait for fork().
TEST(Fork, WorksWhileOthersOpenAndClose) {
  // The thread sanitizer allocates memory for a process's first descriptor, under a lock that its
  // fork() does not hold. If the child opened the first one, it could wait for a thread that it
  // does not have.
  const int first = eventfd(0, EFD_CLOEXEC);
  close_in_children(first);
  close_ours(first);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) {
      const int fd = eventfd(0, EFD_CLOEXEC);
      close_in_children(fd);
      close_ours(fd);
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(holds_in_a_child([] {
      close_in_children(0);
      close_ours(0);
      return true;
    }));
  }
  stop = true;
  other.join();
}

}  // namespace
}  // namespace nezha
