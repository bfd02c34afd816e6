#include "control/way_trial.h"

#include <algorithm>
#include <utility>

namespace nezha {
namespace {

constexpr int kWindows = 12;        // that it takes to win, after the glance
constexpr double kWorth = 0.95;     // of the time before it
constexpr double kHopeless = 1.25;  // times that time, at a glance
constexpr double kSlower = 1.3;     // times what it took before: another way may be better by now
constexpr double kMemory = 0.9;     // of the windows by one way
constexpr double kRecent = 0.7;     // of a trial's: those before lived on what links had saved up
// Windows between two rounds.
constexpr int kLeastPatience = 16;
constexpr int kMostPatience = 256;
constexpr int kDisappointed = 64;  // where a way was better for a while only
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
  before_ = {of(window), before_.front()};
  if (usual_.time == 0) usual_ = before_.front();
  const bool is_slower = std::all_of(before_.begin(), before_.end(), [&](const Took& now) {
    return now.time > 0 && is_below(usual_, 1 / kSlower, now);
  });
  const bool is_refuted = has_won_ && std::all_of(before_.begin(), before_.end(), [&](auto& now) {
                            return now.time > 0 && is_below(beaten_, kWorth, now);
                          });
  if (is_slower || is_refuted) {
    usual_ = before_.front();
    wait_ = 0;
    is_disappointed_ |= has_won_;
    has_won_ = false;
  }
  usual_ = mixed(usual_, kMemory, before_.front());
  if (wait_ > 0) --wait_;
  return wait_ == 0 && before_.back().time > 0;
}

void WayTrial::begin(const TableEntry& home, int others) {
  is_under_way_ = true;
  home_ = home;
  windows_ = 0;
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
  if (windows_++ == 0) return is_below_all(now, kHopeless) ? Verdict::kOpen : lose();
  trial_ = windows_ == 2 ? now : mixed(trial_, kRecent, now);
  if (!is_below_all(trial_, 1)) return lose();
  was_near_ = true;
  if (windows_ <= kWindows) return Verdict::kOpen;
  if (!is_below_all(trial_, kWorth)) return lose();
  interrupt();
  has_won_ = true;
  beaten_ = std::exchange(usual_, trial_);
  left_ = 0;
  patience_ = 0;
  wait_ = is_disappointed_ ? kDisappointed : kSoon;  // another way may be better still
  return Verdict::kWon;
}

WayTrial::Verdict WayTrial::lose() {
  interrupt();
  if (--left_ > 0) {
    wait_ = kSoon;
  } else {
    patience_ = std::clamp((was_near_ ? 2 : 4) * patience_, kLeastPatience, kMostPatience);
    wait_ = patience_;
  }
  return Verdict::kLost;
}

void WayTrial::interrupt() {
  is_under_way_ = false;
  before_ = {};
}

void WayTrial::hurry() {
  usual_ = {};
  has_won_ = is_disappointed_ = false;
  left_ = 0;
  wait_ = std::min(wait_, std::max(kHurry, patience_ / 4));
}

}  // namespace nezha
