// SPDX-License-Identifier: Apache-2.0
// What probes may cost: in the long run a hundredth of the time that operations take.
#pragma once

#include <algorithm>

#include "control/timer.h"

namespace nezha {

// All times in nanoseconds.
class ProbeBudget {
 public:
  static constexpr double kPart = 0.01;

  // What a window by a probe takes more than by what it is made instead of, its home. The step away
  // from it is taken while operations go on by it, so they are twice the window's; and steps are
  // not free.
  static double cost(double home, double probe, int operations) {
    return 2 * operations * (std::max(0.0, probe - home) + 0.05 * home);
  }

  void ran(const Window& window) {
    total_ += static_cast<double>(slowest(window)) * window.operations;
  }
  // Where lanes have changed most of what the probe took is the change's.
  void charge(double home, const Window& probe, bool has_changed) {
    const auto time = static_cast<double>(slowest(probe));
    spent_ += cost(home, has_changed ? std::min(time, kOwn * home) : time, probe.operations);
  }
  // A probe may take longer than was thought, and so twice as much.
  bool affords(double cost) const { return spent_ + 2 * cost <= kPart * total_; }
  // The part of the time that has been spent, as far as windows tell.
  double spent() const { return total_ == 0 ? 0 : spent_ / total_; }

 private:
  static constexpr double kOwn = 1.5;  // times the home's time

  double total_ = 0;
  double spent_ = 0;
};

}  // namespace nezha
