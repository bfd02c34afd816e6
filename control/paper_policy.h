// SPDX-License-Identifier: Apache-2.0
// The policy of Nezha §IV-C, for comparison. It is a reconstruction, because our copy of the paper
// lacks the equations. This is what the text says of each, and what the code does:
//
// - Eq. 1, a threshold below which a class starts cold. A class is cold if larger messages were
//   found cold, and hot if smaller messages were found hot. A cold class still searches for the
//   fastest lane.
// - The coarse search, "several parts, allocated in different proportions". It tries equal parts,
//   three quarters on each lane, and all on each lane, each for a window. The best one decides
//   between cold and hot.
// - Eq. 2, which starts from equal parts. A lane's new part is proportional to x / L, where x is
//   its part and L its latency. Then 1% goes from the slowest lane to the fastest in each step,
//   until a step does not help.
//
// A settled class starts again if for two windows in a row its lanes take other times than when it
// settled: a converged class with Eq. 2, a cold one with the coarse search.
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
  void resume(const Window& last, const Way& ran_by, ClassState state) override;
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
    std::vector<Allocation> untried;  // those yet to try in a coarse search; the next one is last
    Trial best;                       // the best of the current search or steps
    std::optional<Window> settled;    // the first window after the class settled
    bool is_off = false;              // whether the last window differed from `settled`
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
