// SPDX-License-Identifier: Apache-2.0
// A policy that sends every message on one chosen lane while that lane is live. While it is not
// live, the policy returns unlearned().
#pragma once

#include "control/policy.h"

namespace nezha {

class FixedPolicy final : public Policy {
 public:
  FixedPolicy(int lanes, LaneSet alone, int lane) : Policy(lanes, alone), lane_(lane) {}

  Allocation open(SizeClass /*size_class*/) override {
    return contains(live(), lane_) ? all_on(lane_, lanes()) : unlearned();
  }
  void resume(const Window& /*last*/, const Way& /*ran_by*/, ClassState /*state*/) override {}
  std::optional<Decision> on_window(const Window& /*window*/,
                                    const Allocation& /*ran_by*/) override {
    return std::nullopt;
  }
  Allocation on_lanes(SizeClass size_class, const Allocation& /*current*/) override {
    return open(size_class);
  }
  ClassState state(SizeClass /*size_class*/) const override { return ClassState::kCold; }
  int window_operations(SizeClass /*size_class*/) const override { return Timer::kOperations; }

 private:
  int lane_;
};

}  // namespace nezha
