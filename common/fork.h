// SPDX-License-Identifier: Apache-2.0
// What a child of fork() has of its parent's: memory with locks that threads hold which it does not
// have, and descriptors of connections that are not its own. It leaves the one alone and closes the
// other.
#pragma once

#include <atomic>
#include <cstdint>

namespace nezha {

// Another number in a child of fork() than in its parent. Processes made past fork() (clone, vfork)
// are not told apart; what they may do before they execute another program is little anyway.
uint64_t process_generation();

// Whether what holds this was made by a process that this one is a fork of.
class ForkMark {
 public:
  bool is_inherited() const { return generation_ != process_generation(); }

 private:
  uint64_t generation_ = process_generation();
};

// Descriptors that children of fork() do not keep: a connection ends with the process that made it,
// whatever children it leaves behind. Thread-safe. Such a descriptor is closed by close_ours, while
// no child is being made.
void close_in_children(int fd);
void close_ours(int fd);
// Takes close_in_children back, before somebody else closes the descriptor.
void leave_in_children(int fd);

// One T for each process, made when it is first asked for and never destroyed. Static.
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
