// SPDX-License-Identifier: Apache-2.0
#include "common/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <vector>

namespace nezha {
namespace {

std::atomic<uint64_t> generation{0};

// Locked while a process forks: what a child finds in it is true of its descriptors.
struct Descriptors {
  std::mutex mutex;
  std::vector<bool> ours;  // by number
};

Descriptors& descriptors() {
  static auto& descriptors = *new Descriptors;
  return descriptors;
}

void before_fork() { descriptors().mutex.lock(); }
void in_parent() { descriptors().mutex.unlock(); }

// Between fork() and what the child does next: no memory may be taken or given back.
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
