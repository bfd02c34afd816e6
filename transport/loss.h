// SPDX-License-Identifier: Apache-2.0
// Whether a link loses so much of what it sends that it had better be left alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/link.h"

namespace nezha {

// Where a packet in twenty is lost, TCP delivers everything, but whoever waits for what was sent
// last waits for a timeout of a fifth of a second, every few packets: then an operation is over
// later with such a link than without, however little it carries. What it carries does not show
// that, and so the losses are counted. A link that is left alone is sent pings, lest data be
// risked, until enough packets in a row have arrived.
//
// It outlives the link, since one that loses may die of it and come back. Of a link that soon loses
// much again, pings alone did not show it: twice as many are to arrive then.
class Loss {
 public:
  // Another link: it has sent nothing yet.
  void begin() { last_ = {}; }

  // To be called now and then. Whether the judgement changed.
  bool look(const Link::Packets& packets) {
    sent_ += static_cast<int64_t>(packets.sent - last_.sent);
    lost_ += static_cast<int64_t>(packets.lost - last_.lost);  // what had arrived is taken back
    last_ = packets;
    return is_lossy_ ? is_over() : has_begun();
  }

  // Instead of look(), where something else may have lost it: bursts that try rates overrun
  // switches' queues. Of a link that is taken for lossy all counts.
  void pass_over(const Link::Packets& packets) {
    if (!is_lossy_) last_ = packets;
  }

  bool is_lossy() const { return is_lossy_; }

 private:
  // All in packets.
  static constexpr int64_t kJudged = 128;
  static constexpr int64_t kClean = 64;  // of as many one in twenty is rarely none
  static constexpr int64_t kMostClean = 1024;
  static constexpr int64_t kSoon = 16384;
  static constexpr int64_t kTolerable = 32;  // one in so many
  // As often in a row must more be lost: when several hosts send to one at a time, a switch's queue
  // loses dozens of packets, but their senders slow down then.
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
  int64_t sent_ = 0, lost_ = 0;  // since it was last judged
  int64_t times_ = 0;            // that more than is tolerable was lost, in a row
  int64_t well_ = kSoon;         // sent since it was last lossy
  int64_t clean_ = kClean;       // to arrive in a row before it is well again
  bool is_lossy_ = false;
};

}  // namespace nezha
