// SPDX-License-Identifier: Apache-2.0
#include "common/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <vector>

namespace nezha {
namespace {

std::atomic<uint64_t> generation{0};

// Locked while a process forks, so that a child finds the descriptors in a consistent state.
struct Descriptors {
  std::mutex mutex;
  std::vector<bool> ours;  // indexed by descriptor
};

Descriptors& descriptors() {
  static auto& descriptors = *new Descriptors;
  return descriptors;
}

void before_fork() { descriptors().mutex.lock(); }
void in_parent() { descriptors().mutex.unlock(); }

// Runs between fork() and the child's next action, so it may neither allocate nor free memory.
void in_child() {
  generation.fetch_add(1, std::memory_order_relaxed);
  std::vector<bool>& ours = descriptors().ours;
  for (size_t fd = 0; fd < ours.size(); ++fd) {
    if (ours[fd]) close(static_cast<int>(fd));
    ours[fd] = false;
  }
  descriptors().mutex.unlock();
}

[[maybe_unused]] const int kRegistered = pthread_atfork(before_fork, in_parent, in_child);

}  // namespace

uint64_t process_generation() { return generation.load(std::memory_order_relaxed); }

void close_in_children(int fd) {
  const auto slot = static_cast<size_t>(fd);
  const std::lock_guard lock(descriptors().mutex);
  std::vector<bool>& ours = descriptors().ours;
  if (slot >= ours.size()) ours.resize(slot + 1);
  ours[slot] = true;
}

void leave_in_children(int fd) {
  const std::lock_guard lock(descriptors().mutex);
  descriptors().ours[static_cast<size_t>(fd)] = false;
}

void close_ours(int fd) {
  const std::lock_guard lock(descriptors().mutex);
  descriptors().ours[static_cast<size_t>(fd)] = false;
  close(fd);
}

}  // namespace nezha
