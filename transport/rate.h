// How fast a link is, learned from acknowledgements.
#pragma once

#include <cstdint>

#include "common/clock.h"

namespace nezha {

// Bytes acknowledged over *busy* time: the time in which something was in flight. Gathered over
// kWindow and smoothed, since short windows mistake a burst, or a peer that was not scheduled, for
// the network. A busy period of less than kEnough bytes tells of the network's delay as much as of
// its rate, and so such periods may raise the estimate but not lower it. (If they did, a link that
// carries little would seem slow, get less, and seem slower; if they counted for nothing, one that
// has become faster would never be seen to have.) Behind a shaper whose bucket is full they show
// more than the rate: what such messages get; longer ones correct it.
class RateEstimator {
 public:
  // Bytes per second.
  explicit RateEstimator(double initial) : rate_(initial) {}

  void submitted(uint64_t bytes, Nanos time) {
    if (in_flight_ == 0) busy_since_ = time;
    in_flight_ += bytes;
  }

  // Whether the estimate changed.
  bool acknowledged(uint64_t bytes, Nanos time) {
    in_flight_ -= bytes;
    period_bytes_ += bytes;
    const Nanos period = time - busy_since_;
    if (in_flight_ > 0 && period < kWindow) return false;
    const bool is_enough = period_bytes_ >= kEnough || period >= kWindow;
    Busy& busy = is_enough ? busy_ : short_busy_;
    busy.bytes += period_bytes_;
    busy.time += period;
    period_bytes_ = 0;
    busy_since_ = time;
    return update(busy, !is_enough);
  }

  // The link died: what was in flight will not be acknowledged.
  void reset_in_flight() {
    in_flight_ = period_bytes_ = 0;
    busy_ = short_busy_ = Busy();
  }

  uint64_t in_flight() const { return in_flight_; }
  double rate() const { return rate_; }

 private:
  struct Busy {
    uint64_t bytes = 0;
    Nanos time = 0;
  };

  bool update(Busy& busy, bool only_up) {
    if (busy.time < kWindow) return false;
    const double sample =
        static_cast<double>(busy.bytes) * kSecond / static_cast<double>(busy.time);
    busy = Busy();
    if (only_up && sample <= rate_) return false;
    rate_ = measured_ || only_up ? rate_ + kWeight * (sample - rate_) : sample;
    measured_ |= !only_up;
    return true;
  }

  static constexpr Nanos kWindow = 10 * kMillisecond;
  static constexpr uint64_t kEnough = 32 << 10;  // bytes
  static constexpr double kWeight = 0.25;

  double rate_;
  bool measured_ = false;
  uint64_t in_flight_ = 0;  // bytes
  Nanos busy_since_ = 0;
  uint64_t period_bytes_ = 0;  // acknowledged since busy_since_
  Busy busy_, short_busy_;     // since the estimate was last looked at
};

}  // namespace nezha
