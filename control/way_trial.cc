#include "control/way_trial.h"

#include <algorithm>

namespace nezha {
namespace {

constexpr int kWindows = 2;         // that it takes to win, after the glance
constexpr double kWorth = 0.95;     // of the time before it
constexpr double kHopeless = 1.25;  // times that time, at a glance
constexpr double kSlower = 1.3;     // times what it took before: another way may be better by now
constexpr double kMemory = 0.9;
// Windows between two rounds.
constexpr int kLeastPatience = 16;
constexpr int kMostPatience = 256;
constexpr int kHurry = 8;

}  // namespace

WayTrial::Took WayTrial::of(const Window& window) {
  return {static_cast<double>(window.bytes), static_cast<double>(slowest(window))};
}

// Sizes of a class differ by up to a factor of two: whether start-up decides what they take or
// bytes do.
bool WayTrial::is_below(const Took& now, double part, const Took& before) {
  const double ratio = now.time / before.time;
  return std::max(ratio, ratio * before.bytes / now.bytes) < part;
}

bool WayTrial::is_due(const Window& window) {
  before_ = {of(window), before_.front()};
  if (usual_.time == 0) usual_ = before_.front();
  const bool is_slower = std::all_of(before_.begin(), before_.end(), [&](const Took& now) {
    return now.time > 0 && is_below(usual_, 1 / kSlower, now);
  });
  if (is_slower) {
    usual_ = before_.front();
    wait_ = std::min(wait_, kSoon);
  }
  usual_.time = kMemory * usual_.time + (1 - kMemory) * before_.front().time;
  usual_.bytes = kMemory * usual_.bytes + (1 - kMemory) * before_.front().bytes;
  if (wait_ > 0) --wait_;
  return wait_ == 0 && before_.back().time > 0;
}

void WayTrial::begin(const TableEntry& home, int others) {
  is_under_way_ = true;
  home_ = home;
  windows_ = 0;
  if (left_ == 0) left_ = others;
}

WayTrial::Verdict WayTrial::look_at(const Window& window) {
  const double part = windows_ == 0 ? kHopeless : kWorth;
  const bool is_better = std::all_of(before_.begin(), before_.end(), [&](const Took& before) {
    return is_below(of(window), part, before);
  });
  if (is_better && windows_++ < kWindows) return Verdict::kOpen;
  interrupt();
  if (is_better) {
    usual_ = {};
    left_ = 0;
    patience_ = 0;  // what was better for a while will lose the next round
    wait_ = kLeastPatience;
    return Verdict::kWon;
  }
  if (--left_ > 0) {
    wait_ = kSoon;
  } else {
    patience_ = std::clamp(4 * patience_, kLeastPatience, kMostPatience);
    wait_ = patience_;
  }
  return Verdict::kLost;
}

void WayTrial::interrupt() {
  is_under_way_ = false;
  before_ = {};
}

void WayTrial::hurry() { wait_ = std::min(wait_, std::max(kHurry, patience_ / 4)); }

}  // namespace nezha
