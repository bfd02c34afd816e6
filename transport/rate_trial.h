// How fast a link is whose messages do not show it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "common/clock.h"
#include "transport/wire.h"

namespace nezha {

// Short messages keep no link busy, but they go by the fastest, and what they take depends on that.
// So a link that has carried no others is sent a few bursts, at times of its own, lest they meet
// those of other links on the way. The one that took least counts: all that disturbs them takes
// time. Now and then that is done again.
class RateTrial {
 public:
  // Of a burst, of the greatest size: far beyond what a shaper's bucket holds, and what a slow rail
  // carries in milliseconds.
  static constexpr int kFrames = 128;

  // The links of a rail take turns, with a rest after each: a process may have thousands.
  struct Turns {
    double first_rate = 0;  // that a trial has shown; 0: none has
    uint64_t link = 0;      // whose turn it is
    Nanos until = 0;        // others' is not before; its trial may have ended with it

    bool take(uint64_t own_link, Nanos time) {
      if (own_link != link && time < until) return false;
      link = own_link;
      until = time + kTurn;
      return true;
    }
    void end(double rate, Nanos time) {
      if (first_rate == 0) first_rate = rate;
      link = 0;
      until = time + kRest;
    }
  };

  // The link is up. Its times follow from `own`, which other links do not share.
  void begin(Nanos time, uint64_t own) {
    *this = RateTrial();
    own_ = own;
    next_ = time + pause();
  }
  bool is_due(Nanos time) const { return !is_under_way() && time >= next_; }
  void sent(Nanos time) { sent_at_ = time; }
  bool is_under_way() const { return sent_at_ != 0; }
  // Put off or at an end, once at least: what the link's rate is guessed to be is due to a trial.
  bool is_over() const { return is_over_; }
  void put_off(Nanos time) {
    is_over_ = true;
    next_ = time + static_cast<Nanos>(own_ % kAgain);
  }

  // The peer's machine has all of the burst. The rate, in bytes per second, if that was the last.
  std::optional<double> arrived(Nanos time) {
    quickest_ = std::min(quickest_, std::max<Nanos>(1, time - sent_at_));
    sent_at_ = 0;
    next_ = time + pause();
    if (++bursts_ < kBursts) return std::nullopt;
    const double rate =
        double{kFrames} * wire::kMaxControlBody * kSecond / static_cast<double>(quickest_);
    bursts_ = 0;
    quickest_ = kNever;
    is_over_ = true;
    next_ = time + kAgain;
    return rate;
  }

 private:
  static constexpr int kBursts = 3;
  static constexpr uint64_t kLongestPause = 50 * kMillisecond;
  static constexpr Nanos kAgain = 10 * kSecond;
  static constexpr Nanos kTurn = 200 * kMillisecond;
  static constexpr Nanos kRest = kSecond;
  static constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

  Nanos pause() const { return static_cast<Nanos>(own_ % kLongestPause); }

  uint64_t own_ = 0;
  bool is_over_ = false;
  Nanos next_ = 0;     // not before
  Nanos sent_at_ = 0;  // 0: none is under way
  int bursts_ = 0;     // that have arrived
  Nanos quickest_ = kNever;
};

}  // namespace nezha
