// SPDX-License-Identifier: Apache-2.0
// A policy that sends every message on one chosen lane while that lane is live. While it is not
// live, or no lane is chosen yet (-1), the policy returns unlearned().
#pragma once

#include <functional>
#include <utility>

#include "control/policy.h"

namespace nezha {

class FixedPolicy final : public Policy {
 public:
  FixedPolicy(int lanes, LaneSet alone, int lane)
      : FixedPolicy(lanes, alone, [lane](LaneSet) { return lane; }) {}
  // `lane` chooses one of the live lanes, which it is given; -1: none yet.
  FixedPolicy(int lanes, LaneSet alone, std::function<int(LaneSet)> lane)
      : Policy(lanes, alone), lane_(std::move(lane)) {}

  Allocation open(SizeClass /*size_class*/) override { return *only(); }
  std::optional<Allocation> only() const override {
    const int lane = lane_(live());
    return lane >= 0 && contains(live(), lane) ? all_on(lane, lanes()) : unlearned();
  }
  void resume(const Window& /*last*/, const Allocation& /*ran_by*/, ClassState /*state*/) override {
  }
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
  std::function<int(LaneSet)> lane_;
};

}  // namespace nezha
