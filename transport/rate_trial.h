// SPDX-License-Identifier: Apache-2.0
// Measures a rail whose messages do not show its rate.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "common/clock.h"
#include "transport/wire.h"

namespace nezha {

// Short messages do not keep a link busy, but they go by the fastest link, and their time depends
// on which one that is. So a process tries each of its rails once, with bursts to one peer. It
// sends the first as soon as there is a link, so that something is known before much is carried. If
// all messages are short, it sends two more, at times that other processes hardly share, since
// their bursts may be on the way, too. The quickest burst counts, since all that disturbs a burst
// takes time.
class RateTrial {
 public:
  // Frames of a burst, of the greatest size. A burst is far more than a shaper's bucket holds, and
  // takes a slow rail milliseconds.
  static constexpr int kFrames = 128;
  // A burst that takes longer is not waited for.
  static constexpr Nanos kLongest = 2 * kSecond;

  // Returns the rate in bytes per second, as far as bursts have shown it; 0 if none has arrived.
  double rate() const { return rate_; }
  bool is_over() const { return bursts_ == kBursts; }

  // Returns whether that link, which is fit for it, is to be sent a burst now. The first link that
  // asks has the trial; if nothing has come of that for long, another may have it. `seed` depends
  // on this process and link.
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
  // The link is up, and keeps the trial.
  void hold(uint64_t link, Nanos time) {
    if (link == link_) held_until_ = time + kPatience;
  }
  void sent(Nanos time) { sent_at_ = time; }
  // A part of a peer's burst has come.
  void disturbed(Nanos time) { disturbed_at_ = time; }
  // Returns whether any burst was on its way after `since`.
  bool has_disturbed(Nanos since, Nanos time) const {
    return disturbed_at_ >= since || (sent_at_ != 0 && time - sent_at_ < kLongest);
  }
  bool is_under_way(uint64_t link) const { return link == link_ && sent_at_ != 0; }
  // The link is gone, and so is what was sent by it.
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

  // Returns the pause before a burst. It differs before each burst, so that processes whose bursts
  // have met once do not meet again.
  Nanos pause() const { return static_cast<Nanos>((seed_ >> (16 * bursts_)) % kLongestPause); }

  double rate_ = 0;
  uint64_t link_ = 0;  // the link that is sent bursts; 0: none was
  Nanos held_until_ = 0;
  uint64_t seed_ = 0;
  Nanos next_ = 0;          // the next burst goes no sooner
  Nanos sent_at_ = 0;       // when the burst under way was sent; 0: none is
  Nanos disturbed_at_ = 0;  // when a burst was last on its way
  int bursts_ = 0;          // bursts that have arrived
  Nanos quickest_ = kNever;
};

}  // namespace nezha
