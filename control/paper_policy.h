// SPDX-License-Identifier: Apache-2.0
// The policy of Nezha §IV-C, for comparison. A reconstruction: our copy of the paper lacks its
// equations. What each says in words, and what is done here:
//
// - Eq. 1, a threshold below which a class starts cold: a class of smaller messages than one that
//   was found cold is cold, of larger ones than one found hot is hot; which lane is the fastest is
//   still searched for.
// - The coarse search, "several parts, allocated in different proportions": equal parts, three
//   quarters on each lane, all on each lane, each for a window. The best decides cold or hot.
// - Eq. 2, from equal parts on: x' in proportion to x / L, x a lane's part and L its latency. Then
//   steps of 1% from the slowest lane to the fastest, until one does not help.
//
// A settled class whose lanes take other times than when it settled, for two windows in a row,
// starts again: hot with Eq. 2, cold with the coarse search.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "control/policy.h"

namespace nezha {

class PaperPolicy final : public Policy {
 public:
  explicit PaperPolicy(int lanes) : Policy(lanes) {}

  Allocation open(SizeClass size_class) override;
  void resume(const Window& last, const Allocation& ran_by, ClassState state) override;
  std::optional<Decision> on_window(const Window& window, const Allocation& allocation) override;
  Allocation on_lanes(SizeClass size_class, const Allocation& current) override;
  std::optional<Allocation> on_silence(SizeClass size_class) override;
  ClassState state(SizeClass size_class) const override;
  int window_operations(SizeClass /*size_class*/) const override { return Timer::kOperations; }

 private:
  struct Trial {
    Allocation allocation;  // empty: none yet
    double cost = 0;        // nanoseconds a byte
  };
  struct Class {
    ClassState state = ClassState::kSearching;
    std::vector<Allocation> untried;  // of the coarse search, the next one last
    Trial best;                       // of this search, or of these steps
    std::optional<Window> settled;    // the first window after it settled
    bool is_off = false;              // the last window was not like that one
  };

  Allocation start_search(Class& known, bool only_alone) const;
  Allocation start_hot(Class& known, Allocation first) const;
  std::optional<Decision> on_search(Class& known, const Allocation& ran_by);
  std::optional<Decision> on_hot(Class& known, const Window& window, const Allocation& ran_by,
                                 bool is_first, bool is_best);
  std::optional<Decision> on_settled(Class& known, const Window& window, const Allocation& ran_by);

  std::map<SizeClass, Class> classes_;
};

}  // namespace nezha
