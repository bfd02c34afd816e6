// SPDX-License-Identifier: Apache-2.0
// A child of fork() inherits two things from its parent that it cannot use: memory with locks held
// by threads that the child does not have, and descriptors of connections that are not its own. It
// leaves that memory alone and closes those descriptors.
#pragma once

#include <atomic>
#include <cstdint>

namespace nezha {

// Returns a number that is different in a child of fork() than in its parent. It does not
// distinguish processes that are made without fork() (clone, vfork); these may do little anyway
// before they execute another program.
uint64_t process_generation();

// Tells whether the object that holds the mark was made by a process of which this one is a fork.
class ForkMark {
 public:
  bool is_inherited() const { return generation_ != process_generation(); }

 private:
  uint64_t generation_ = process_generation();
};

// Marks a descriptor that children of fork() do not keep: a connection ends with the process that
// made it, whatever children that process leaves behind. close_ours() must close such a descriptor;
// it waits while a child is being made. Thread-safe.
void close_in_children(int fd);
void close_ours(int fd);
// Undoes close_in_children(), before other code closes the descriptor.
void leave_in_children(int fd);

// Holds one T for each process, made on first use and never destroyed. It is for static variables.
template <typename T>
class PerProcess {
 public:
  T& get() {
    Made* made = made_.load(std::memory_order_acquire);
    while (made == nullptr || made->mark.is_inherited()) {
      auto* fresh = new Made;
      if (made_.compare_exchange_strong(made, fresh, std::memory_order_acq_rel))
        return fresh->value;
      delete fresh;  // another thread was first
    }
    return made->value;
  }

 private:
  struct Made {
    T value;
    ForkMark mark;
  };
  std::atomic<Made*> made_{nullptr};
};

}  // namespace nezha
