// SPDX-License-Identifier: Apache-2.0
#include "control/way_trial.h"

#include <algorithm>
#include <utility>

namespace nezha {
namespace {

constexpr int kWindows = 12;        // that it takes to win, after the glance
constexpr double kWorth = 0.95;     // of the time before it
constexpr double kHopeless = 1.25;  // times that time, at a glance
// Less than that is worth another glance: ranks that share cores take some operations until they
// have found places at which the other way is fast.
constexpr double kBeyondDoubt = 1.75;
constexpr double kNearlyThere = 1.1;  // the window that follows
constexpr double kSlower = 1.3;       // times what it took before: another way may be better by now
constexpr int kSlow = 3;              // windows in a row: what takes half of that comes and goes
constexpr double kMemory = 0.9;       // of the windows by one way
constexpr double kRecent = 0.7;       // of a trial's: those before lived on what links had saved up
// Windows between two rounds.
constexpr int kLeastPatience = 16;
constexpr int kMostPatience = 256;
constexpr int kForAWhile = 16;     // a way was better, if it is slower by then
constexpr int kDisappointed = 80;  // where one was better for a while only
constexpr int kHurry = 8;

}  // namespace

WayTrial::Took WayTrial::of(const Window& window) {
  return {static_cast<double>(window.bytes), static_cast<double>(slowest(window))};
}

WayTrial::Took WayTrial::mixed(const Took& old, double part, const Took& now) {
  return {part * old.bytes + (1 - part) * now.bytes, part * old.time + (1 - part) * now.time};
}

// Sizes of a class differ by up to a factor of two: whether start-up decides what they take or
// bytes do.
bool WayTrial::is_below(const Took& now, double part, const Took& before) {
  const double ratio = now.time / before.time;
  return std::max(ratio, ratio * before.bytes / now.bytes) < part;
}

bool WayTrial::is_due(const Window& window) {
  const Took now = of(window);
  before_ = {now, before_.front()};
  if (usual_.time == 0) usual_ = now;
  const bool is_slower = is_below(usual_, 1 / kSlower, now);
  const bool is_refuted = has_won_ && is_below(beaten_, kWorth, now);
  slow_ = is_slower || is_refuted ? slow_ + 1 : 0;
  usual_ = mixed(usual_, kMemory, now);
  if (slow_ >= kSlow) {
    usual_ = now;
    slow_ = wait_ = left_ = 0;
    patience_ /= 4;
    is_disappointed_ |= has_won_ && since_won_ < kForAWhile;
    has_won_ = false;
  }
  ++since_won_;
  if (wait_ > 0) --wait_;
  return wait_ == 0 && before_.back().time > 0;
}

void WayTrial::begin(const TableEntry& home, int others) {
  is_under_way_ = true;
  home_ = home;
  windows_ = 0;
  is_slow_ = false;
  trial_ = {};
  if (left_ > 0) return;
  left_ = others;
  was_near_ = false;
}

bool WayTrial::is_below_all(const Took& now, double part) const {
  const Took lately = mixed(before_.back(), 0.5, before_.front());
  return is_below(now, part, lately) && is_below(now, part, usual_);
}

WayTrial::Verdict WayTrial::look_at(const Window& window) {
  const Took now = of(window);
  if (windows_ == 0 && !is_below_all(now, kHopeless)) {
    const bool was_slow = std::exchange(is_slow_, true);
    return was_slow || !is_below_all(now, kBeyondDoubt) ? lose() : Verdict::kOpen;
  }
  if (windows_++ == 0) return Verdict::kOpen;
  if (windows_ == 2 && is_below_all(now, kNearlyThere)) return Verdict::kOpen;
  trial_ = trial_.time == 0 ? now : mixed(trial_, kRecent, now);
  if (!is_below_all(trial_, 1)) return lose();
  was_near_ = true;
  if (windows_ <= kWindows) return Verdict::kOpen;
  if (!is_below_all(trial_, kWorth)) return lose();
  interrupt();
  has_won_ = true;
  since_won_ = 0;
  beaten_ = std::exchange(usual_, trial_);
  patience_ = 0;
  rest(kLeastPatience);
  if (is_disappointed_) wait_ = patience_ = kDisappointed;
  return Verdict::kWon;
}

WayTrial::Verdict WayTrial::lose() {
  interrupt();
  rest(std::clamp((was_near_ ? 2 : 4) * patience_, kLeastPatience, kMostPatience));
  return Verdict::kLost;
}

// Until the next way of the round or, after the last one, for so many windows until the next round.
void WayTrial::rest(int patience) {
  if (--left_ > 0) {
    wait_ = std::max(kSoon, patience_ / 4);
  } else {
    wait_ = patience_ = patience;
  }
}

void WayTrial::interrupt() {
  is_under_way_ = false;
  before_ = {};
}

void WayTrial::hurry() {
  usual_ = {};
  has_won_ = is_disappointed_ = false;
  left_ = slow_ = 0;
  wait_ = std::clamp(wait_, kSoon, std::max(kHurry, patience_ / 4));
}

}  // namespace nezha
