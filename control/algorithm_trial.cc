#include "control/algorithm_trial.h"

#include <algorithm>

namespace nezha {
namespace {

constexpr int kWindows = 2;         // that it takes to win, after the glance
constexpr double kWorth = 0.95;     // of the time before it
constexpr double kHopeless = 1.25;  // times that time, at a glance
// Windows between two trials.
constexpr int kLeastPatience = 16;
constexpr int kMostPatience = 256;
constexpr int kHurry = 8;

}  // namespace

AlgorithmTrial::Took AlgorithmTrial::of(const Window& window) {
  return {static_cast<double>(window.bytes), static_cast<double>(slowest(window))};
}

bool AlgorithmTrial::is_due(const Window& window) {
  before_ = {of(window), before_.front()};
  if (wait_ > 0) --wait_;
  return wait_ == 0 && before_.back().time > 0;
}

void AlgorithmTrial::begin(const TableEntry& home) {
  is_under_way_ = true;
  home_ = home;
  windows_ = 0;
}

// Sizes of a class differ by up to a factor of two: it must be the better one whether start-up
// decides what they take or bytes do.
AlgorithmTrial::Verdict AlgorithmTrial::look_at(const Window& window) {
  const Took now = of(window);
  const bool is_glance = windows_ == 0;
  const double most = is_glance ? kHopeless : kWorth;
  const bool is_better = std::all_of(before_.begin(), before_.end(), [&](const Took& before) {
    const double ratio = now.time / before.time;
    return std::max(ratio, ratio * before.bytes / now.bytes) < most;
  });
  if (is_better && windows_++ < kWindows) return Verdict::kOpen;
  interrupt();
  patience_ = std::clamp(4 * patience_, kLeastPatience, kMostPatience);
  wait_ = patience_;
  return is_better ? Verdict::kWon : Verdict::kLost;
}

void AlgorithmTrial::interrupt() {
  is_under_way_ = false;
  before_ = {};
}

void AlgorithmTrial::hurry() { wait_ = std::min(wait_, std::max(kHurry, patience_ / 4)); }

}  // namespace nezha
