// How fast a link is, learned from acknowledgements.
#pragma once

#include <cstdint>

#include "common/clock.h"

namespace nezha {

// Bytes acknowledged over *busy* time: the time in which something was in flight. Gathered over
// kWindow and smoothed, since short windows mistake a burst, or a peer that was not scheduled, for
// the network. A busy period of less than kEnough bytes tells of the network's delay and not of its
// rate, and does not count: a link that carries little would seem slow, get less, and seem slower.
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
    if (period_bytes_ >= kEnough || period >= kWindow) {
      gathered_bytes_ += period_bytes_;
      gathered_time_ += period;
    }
    period_bytes_ = 0;
    busy_since_ = time;
    return update();
  }

  // The link died: what was in flight will not be acknowledged.
  void reset_in_flight() {
    in_flight_ = period_bytes_ = gathered_bytes_ = 0;
    gathered_time_ = 0;
  }

  uint64_t in_flight() const { return in_flight_; }
  double rate() const { return rate_; }

 private:
  bool update() {
    if (gathered_time_ < kWindow) return false;
    const double sample =
        static_cast<double>(gathered_bytes_) * kSecond / static_cast<double>(gathered_time_);
    rate_ = measured_ ? rate_ + kWeight * (sample - rate_) : sample;
    measured_ = true;
    gathered_bytes_ = 0;
    gathered_time_ = 0;
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
  uint64_t gathered_bytes_ = 0;
  Nanos gathered_time_ = 0;
};

}  // namespace nezha
