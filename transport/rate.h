// SPDX-License-Identifier: Apache-2.0
// Learns how fast a link is from acknowledgements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "common/clock.h"

namespace nezha {

// The rate is bytes acknowledged over *busy* time, in which something was in flight. Both are
// gathered over kWindow and smoothed, since short windows mistake a burst, or a peer that was not
// scheduled, for the network. The estimate is all bytes over all time, and later ones count for
// more: the mean of the windows' rates would be too high where bursts end the windows. Two windows
// in a row that are far off begin it anew. A busy period of less than kEnough bytes shows the
// network's delay as much as its rate, so such periods may raise the estimate but not lower it. (If
// they did lower it, a link that carries little would seem slow, get less, and seem slower. If they
// did not count at all, nobody would notice that a link has become faster.) Behind a shaper whose
// bucket is full, short periods show more than the rate. That is what such messages get, and longer
// ones correct it.
//
// The time until the first acknowledgement of a busy time shows nothing about the rate: this
// acknowledgement waits behind what the peer has to send by the same rail. (If it counted, a rail
// by which the peer sends much would seem slow and would get less, and its acknowledgements would
// come sooner there: of two ranks that send to each other, each would take one rail and leave the
// other to its peer.)
//
// If each of several short messages waits for the answer to the one before, a link is busy all the
// time, but never carries more than one of them, and shares its rail with the links to other peers
// whose turns come in between. What the link gets then is only a part of its rate, and shows no
// more than by how much the rate changes.
//
// A first window of few bytes that took long shows either a slow link or a peer that was not
// scheduled, so it counts no more than the guess. The link still gets something to carry, and the
// next window shows which it was.
//
// If all messages are short, a rate that has fallen shows as time beyond the least that a short
// period took before. If the best of kRun periods is clearly so late, the estimate is lowered. It
// is restored when the earlier estimate fits the best of kRun better. As the link may carry too
// little for that to show, `hope` raises the estimate little by little.
class RateEstimator {
 public:
  // `initial`: bytes per second. `is_guess`: it is no more than a guess.
  explicit RateEstimator(double initial, bool is_guess = true)
      : rate_(initial), is_guess_(is_guess) {}

  // Replaces a guess, even one that short periods or steps have changed, but nothing that long
  // periods have shown.
  void guess(double rate) {
    if (!is_guess_) return;
    rate_ = rate;
    step_ = 0;
  }
  bool is_guess() const { return is_guess_; }

  // Says whether something else takes the link's time. What is in flight then, and what is
  // submitted while that goes on, is not measured.
  void disturb(bool goes_on) {
    is_disturbed_ = goes_on;
    unclear_ = in_flight_;
    period_ = {};
  }

  void submitted(uint64_t bytes, Nanos time) {
    if (in_flight_ == 0) {
      busy_since_ = time;
      lead_ = {};
    }
    in_flight_ += bytes;
    most_in_flight_ = std::max(most_in_flight_, in_flight_);
    if (is_disturbed_) unclear_ += bytes;
  }

  // Returns whether the estimate changed.
  bool acknowledged(uint64_t bytes, Nanos time) {
    in_flight_ -= bytes;
    if (unclear_ > 0) {  // acknowledgements come in order
      unclear_ -= std::min(unclear_, bytes);
      busy_since_ = time;
      most_in_flight_ = in_flight_;
      return false;
    }
    period_.bytes += bytes;
    ++period_.acknowledgements;
    period_.time = time - busy_since_;
    if (lead_.bytes == 0 || lead_.time == period_.time) lead_ = period_;
    if (in_flight_ > 0 && period_.time < kWindow) return false;
    busy_since_ = time;
    const Busy lead = std::exchange(lead_, {.bytes = kNoLead});
    return on_period(std::exchange(period_, {}), lead, std::exchange(most_in_flight_, in_flight_));
  }

  // Doubles the estimate, up to `limit`, of a link that has carried nothing for a while: it may be
  // faster by now.
  void hope(double limit) { rate_ = std::max(rate_, std::min(2 * rate_, limit)); }

  // The link died: what was in flight will not be acknowledged.
  void reset_in_flight() {
    in_flight_ = most_in_flight_ = 0;
    period_ = busy_ = short_busy_ = steps_ = Busy();
    unclear_ = 0;
    is_disturbed_ = false;
  }

  uint64_t in_flight() const { return in_flight_; }
  double rate() const { return rate_; }

 private:
  struct Busy {
    uint64_t bytes = 0;
    Nanos time = 0;
    int acknowledgements = 0;

    double rate() const { return static_cast<double>(bytes) * kSecond / static_cast<double>(time); }
    Busy& operator+=(const Busy& period) {
      bytes += period.bytes;
      time += period.time;
      acknowledgements += period.acknowledgements;
      return *this;
    }
  };

  // Returns whether the estimate changed.
  bool on_period(const Busy& period, const Busy& lead, uint64_t most_in_flight) {
    if (period.bytes < kEnough && period.time < kWindow) {
      const bool is_judged = judge(period.bytes, period.time);
      return (is_over(short_busy_ += period) && raise(std::exchange(short_busy_, {}))) || is_judged;
    }
    if (period.acknowledgements > 1 && most_in_flight < kFull) {
      return is_over(steps_ += period) && follow(std::exchange(steps_, {}));
    }
    return is_over(busy_ += without(period, lead)) && learn(std::exchange(busy_, {}));
  }
  // Returns the period without its lead, if enough is left.
  static Busy without(const Busy& period, const Busy& lead) {
    if (lead.bytes == kNoLead || period.bytes < lead.bytes + kEnough) return period;
    return {period.bytes - lead.bytes, period.time - lead.time,
            period.acknowledgements - lead.acknowledgements};
  }
  static bool is_over(const Busy& window) { return window.time >= kWindow; }

  bool raise(const Busy& window) {
    if (window.rate() <= rate_) return false;
    rate_ += kShortWeight * (window.rate() - rate_);
    return true;
  }

  bool follow(const Busy& window) {
    const double length = static_cast<double>(window.bytes) / window.acknowledgements;
    if (step_ == 0 || std::max(length, step_length_) > kAlike * std::min(length, step_length_)) {
      at_step_ = rate_;
      step_ = window.rate();
      step_length_ = length;
    }
    at_step_ = std::max(at_step_, window.rate());
    const double part = window.rate() / step_;
    if (part > 1 / kAlike) step_ += kShortWeight * (window.rate() - step_);
    average(part > 1 / kAlike ? at_step_ : part * at_step_, window);
    return true;
  }

  bool learn(const Busy& window) {
    if (std::exchange(step_, 0) != 0 && is_guess_) memory_ = 0;
    is_guess_ = !average(window.rate(), window) && is_guess_;
    return true;
  }

  // Averages the sample in. Returns false if it may only show that the peer was not scheduled.
  bool average(double sample, const Busy& window) {
    const bool has_changed = is_surprising(sample);
    memory_ *= has_changed ? 0 : kMemory;
    const bool is_few = window.bytes < kEnough;
    const bool is_doubtful = memory_ == 0 && !has_changed && is_few && sample < rate_;
    if (is_doubtful) memory_ = kWindow;
    // One long window may be due to a peer that was not scheduled. It counts for no more than all
    // before it.
    const auto time = static_cast<double>(window.time);
    const double counts = memory_ > 0 ? std::min(time, memory_) : time;
    rate_ += (sample - rate_) * counts / (memory_ + counts);
    memory_ += counts;
    before_ = 0;
    return !is_doubtful;
  }

  // Returns whether the sample is far off to the same side as the one before it: then the rate has
  // changed.
  bool is_surprising(double sample) {
    const int side = sample > kFar * rate_ ? 1 : sample < rate_ / kFar ? -1 : 0;
    return std::exchange(side_, side) == side && side != 0;
  }

  // Finds out from short periods whether the rate has fallen far, or is again what it was. Returns
  // whether the estimate changed.
  bool judge(uint64_t bytes, Nanos period) {
    if (bytes < kTelling) return false;
    const double expected = time_of(bytes, rate_);
    const double delay = static_cast<double>(period) - expected;
    const double least = static_cast<double>(period) - time_of(bytes, std::max(rate_, before_));
    if (least > 0) least_delay_ = std::min(least_delay_, least);
    if (run_ == 0 || delay < best_.delay) best_ = {bytes, expected, delay};
    if (++run_ < kRun) return false;
    run_ = 0;
    const double extra = best_.delay - least_delay_;
    if (before_ > 0 && 2 * extra < time_of(best_.bytes, before_) - best_.expected) {
      rate_ = std::exchange(before_, 0);
      step_ = 0;
      return true;
    }
    if (extra < kNoticeable || extra < (kClearly - 1) * best_.expected) return false;
    before_ = std::max(before_, rate_);
    rate_ = static_cast<double>(best_.bytes) * kSecond / (best_.expected + extra);
    memory_ = 0;
    step_ = 0;
    short_busy_ = Busy();
    is_guess_ = false;
    return true;
  }
  static double time_of(uint64_t bytes, double rate) {  // ns
    return static_cast<double>(bytes) * kSecond / rate;
  }

  static constexpr Nanos kWindow = 10 * kMillisecond;
  static constexpr uint64_t kEnough = 32 << 10;  // bytes
  // This value as the bytes of a lead says that the period follows another one without a pause, and
  // has no lead.
  static constexpr uint64_t kNoLead = std::numeric_limits<uint64_t>::max();
  // A link that is never idle has at least so many bytes in flight.
  static constexpr uint64_t kFull = 16 << 10;
  static constexpr double kAlike = 1.5;   // steps are alike if lengths, or rates, differ by no more
  static constexpr double kMemory = 0.9;  // the part of memory_ that each new window keeps
  static constexpr double kFar = 2;
  static constexpr double kShortWeight = 0.25;
  static constexpr int kRun = 16;                // short periods
  static constexpr uint64_t kTelling = 2 << 10;  // bytes
  static constexpr double kNoticeable = 200 * kMicrosecond;
  static constexpr double kClearly = 4;  // times as long

  double rate_;
  bool is_guess_;
  bool is_disturbed_ = false;
  uint64_t unclear_ = 0;    // bytes in flight that were disturbed
  double memory_ = 0;       // ns: weight of the windows that the estimate averages; 0: a guess
  int side_ = 0;            // the side to which the last window was far off; 0: neither
  uint64_t in_flight_ = 0;  // bytes
  Nanos busy_since_ = 0;
  uint64_t most_in_flight_ = 0;  // the most since busy_since_
  Busy period_;                  // the period since busy_since_
  Busy lead_;  // the beginning of period_, until the first acknowledgement; see kNoLead
  Busy busy_, short_busy_, steps_;  // those since the estimate was last looked at
  // The rate that steps of step_length_ bytes have shown of late, where the link's is at_step_; 0:
  // none.
  double step_ = 0;
  double step_length_ = 0;
  double at_step_ = 0;

  struct Short {
    uint64_t bytes = 0;
    double expected = 0;  // ns, by the estimate
    double delay = 0;     // ns, beyond that
  };
  int run_ = 0;  // short periods since `judge` last decided
  Short best_;   // the best of them
  double least_delay_ = std::numeric_limits<double>::max();  // ns, of all short periods
  double before_ = 0;  // the estimate before it was lowered; 0: it was not
};

}  // namespace nezha
