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

  // The link is up. Its times follow from `own`, which other links do not share.
  void begin(Nanos time, uint64_t own) {
    *this = RateTrial();
    pause_ = static_cast<Nanos>(own % kLongestPause);
    next_ = time + pause_;
  }
  bool is_due(Nanos time) const { return !is_under_way() && time >= next_; }
  void sent(Nanos time) { sent_at_ = time; }
  bool is_under_way() const { return sent_at_ != 0; }

  // The peer's machine has all of the burst. The rate, in bytes per second, if that was the last.
  std::optional<double> arrived(Nanos time) {
    quickest_ = std::min(quickest_, std::max<Nanos>(1, time - sent_at_));
    sent_at_ = 0;
    next_ = time + pause_;
    if (++bursts_ < kBursts) return std::nullopt;
    const double rate =
        double{kFrames} * wire::kMaxControlBody * kSecond / static_cast<double>(quickest_);
    bursts_ = 0;
    quickest_ = kNever;
    next_ = time + kAgain;
    return rate;
  }

 private:
  static constexpr int kBursts = 3;
  static constexpr uint64_t kLongestPause = 50 * kMillisecond;
  static constexpr Nanos kAgain = 10 * kSecond;
  static constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

  Nanos pause_ = 0;
  Nanos next_ = 0;     // not before
  Nanos sent_at_ = 0;  // 0: none is under way
  int bursts_ = 0;     // that have arrived
  Nanos quickest_ = kNever;
};

}  // namespace nezha
