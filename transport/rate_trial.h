// SPDX-License-Identifier: Apache-2.0
// How fast a rail is whose messages do not show it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "common/clock.h"
#include "transport/wire.h"

namespace nezha {

// Short messages keep no link busy, but they go by the fastest, and what they take depends on that.
// So a process tries each of its rails once: it sends one peer a burst as soon as there is a link,
// so that something is known before much is carried, and, where only short messages are, two more,
// at times that other processes hardly share, since those may be on their way, too. The one that
// took least counts: all that disturbs them takes time.
class RateTrial {
 public:
  // Of a burst, of the greatest size: far beyond what a shaper's bucket holds, and what a slow rail
  // carries in milliseconds.
  static constexpr int kFrames = 128;
  // One that takes longer is not waited for.
  static constexpr Nanos kLongest = 2 * kSecond;

  // Bytes per second, as far as bursts have shown it; 0: none has arrived.
  double rate() const { return rate_; }
  bool is_over() const { return bursts_ == kBursts; }

  // Whether that link, which is fit for it, is to be sent a burst now: the first one that asks, or,
  // where nothing has come of that for long, another. `seed` is of this process and link.
  bool is_due(uint64_t link, uint64_t seed, Nanos time) {
    if (is_over() || (link != link_ && time < held_until_)) return false;
    if (link != link_) {
      link_ = link;
      seed_ = seed;
      sent_at_ = 0;
      hold(link, time);
    }
    return sent_at_ == 0 && time >= next_;
  }
  // The link is up, and its trial goes on.
  void hold(uint64_t link, Nanos time) {
    if (link == link_) held_until_ = time + kPatience;
  }
  void sent(Nanos time) { sent_at_ = time; }
  // A part of a peer's burst has come.
  void disturbed(Nanos time) { disturbed_at_ = time; }
  // Whether any burst was on its way since then.
  bool has_disturbed(Nanos since, Nanos time) const {
    return disturbed_at_ >= since || (sent_at_ != 0 && time - sent_at_ < kLongest);
  }
  bool is_under_way(uint64_t link) const { return link == link_ && sent_at_ != 0; }
  // The link is gone, and what was sent by it.
  void lost(uint64_t link) {
    if (link == link_) sent_at_ = 0;
  }

  // The peer's machine has all of the burst.
  void arrived(Nanos time) {
    quickest_ = std::min(quickest_, std::max<Nanos>(1, time - sent_at_));
    disturbed_at_ = time;
    sent_at_ = 0;
    ++bursts_;
    next_ = time + pause();
    rate_ = double{kFrames} * wire::kMaxControlBody * kSecond / static_cast<double>(quickest_);
  }

 private:
  static constexpr int kBursts = 3;
  static constexpr uint64_t kLongestPause = 50 * kMillisecond;
  static constexpr Nanos kPatience = 200 * kMillisecond;
  static constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

  // Another one before each burst: who has met others once is not to meet them again.
  Nanos pause() const { return static_cast<Nanos>((seed_ >> (16 * bursts_)) % kLongestPause); }

  double rate_ = 0;
  uint64_t link_ = 0;  // that is sent bursts; 0: none was
  Nanos held_until_ = 0;
  uint64_t seed_ = 0;
  Nanos next_ = 0;          // burst: not before
  Nanos sent_at_ = 0;       // 0: none is under way
  Nanos disturbed_at_ = 0;  // last
  int bursts_ = 0;          // that have arrived
  Nanos quickest_ = kNever;
};

}  // namespace nezha
