// SPDX-License-Identifier: Apache-2.0
// A policy for tests: each window gets random parts and, if asked for, a random algorithm, so that
// plans change as often as possible.
#pragma once

#include <random>

#include "control/policy.h"

namespace nezha {

class ShufflePolicy final : public Policy {
 public:
  ShufflePolicy(int lanes, LaneSet alone, bool changes_algorithms)
      : Policy(lanes, alone), changes_algorithms_(changes_algorithms) {}

  Allocation open(SizeClass size_class) override;
  void resume(const Window& last, const Way& ran_by, ClassState state) override;
  std::optional<Decision> on_window(const Window& window, const Allocation& ran_by) override;
  bool may_use(SizeClass /*size_class*/, Algorithm /*algorithm*/) const override { return true; }
  Allocation on_lanes(SizeClass size_class, const Allocation& current) override;
  ClassState state(SizeClass /*size_class*/) const override { return ClassState::kSearching; }
  int window_operations(SizeClass /*size_class*/) const override { return 1; }

 private:
  Allocation any();

  bool changes_algorithms_;
  std::mt19937 random_;
};

}  // namespace nezha
