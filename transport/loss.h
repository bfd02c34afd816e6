// SPDX-License-Identifier: Apache-2.0
// Loss decides whether a link loses so much of what it sends that it is better left alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/link.h"

namespace nezha {

// If one packet in twenty is lost, TCP delivers everything. But every few packets, whoever waits
// for what was sent last waits for a timeout of a fifth of a second. Then an operation takes longer
// with such a link than without it, however little the link carries. The link's throughput does not
// show that, so losses are counted. A link that is left alone is sent pings, which risk no data,
// until enough packets in a row have arrived.
//
// It outlives the link, which may die of its losses and come back. If a link is soon lossy again,
// pings alone did not show it, so twice as many must arrive the next time.
class Loss {
 public:
  // Begins with another link, which has sent nothing yet.
  void begin() { last_ = {}; }

  // Counts what the link has sent and lost since the last look. Callers call this now and then.
  // Returns whether the judgement changed.
  bool look(const Link::Packets& packets) {
    sent_ += static_cast<int64_t>(packets.sent - last_.sent);
    lost_ += static_cast<int64_t>(packets.lost - last_.lost);  // less those that had arrived
    last_ = packets;
    return is_lossy_ ? is_over() : has_begun();
  }

  // Is called instead of look() if something else may have caused the losses: bursts that try rates
  // overrun switches' queues. Once a link is taken for lossy, all its losses count.
  void pass_over(const Link::Packets& packets) {
    if (!is_lossy_) last_ = packets;
  }

  bool is_lossy() const { return is_lossy_; }

 private:
  // These constants are in packets.
  static constexpr int64_t kJudged = 128;
  static constexpr int64_t kClean = 64;  // if one in twenty is lost, so many rarely all arrive
  static constexpr int64_t kMostClean = 1024;
  static constexpr int64_t kSoon = 16384;
  static constexpr int64_t kTolerable = 32;  // one in so many
  // How often in a row more must be lost. When several hosts send to one at a time, a switch's
  // queue loses dozens of packets, but then their senders slow down.
  static constexpr int64_t kTimes = 2;

  bool has_begun() {
    if (sent_ < kJudged) return false;
    times_ = lost_ * kTolerable > sent_ ? times_ + 1 : 0;
    well_ = std::min(kSoon, well_ + sent_);
    sent_ = lost_ = 0;
    if (times_ < kTimes) return false;
    is_lossy_ = true;
    clean_ = well_ < kSoon ? std::min(2 * clean_, kMostClean) : kClean;
    return true;
  }

  bool is_over() {
    if (lost_ <= 0 && sent_ < clean_) return false;
    is_lossy_ = lost_ > 0;
    sent_ = lost_ = well_ = times_ = 0;
    return !is_lossy_;
  }

  Link::Packets last_;
  int64_t sent_ = 0, lost_ = 0;  // counts since it was last judged
  int64_t times_ = 0;            // how often in a row more than is tolerable was lost
  int64_t well_ = kSoon;         // sent since it was last lossy
  int64_t clean_ = kClean;       // packets that must arrive in a row before it is well again
  bool is_lossy_ = false;
};

}  // namespace nezha
