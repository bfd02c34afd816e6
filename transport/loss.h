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
// It outlives the link, since one that loses may die of it and come back.
class Loss {
 public:
  // Another link: it has sent nothing yet.
  void begin() { last_ = {}; }

  // To be called now and then. Whether the judgement changed.
  bool look(const Link::Packets& packets) {
    sent_ += packets.sent - last_.sent;
    lost_ += packets.lost - std::min(last_.lost, packets.lost);
    last_ = packets;
    const bool was_lossy = is_lossy_;
    if (was_lossy && lost_ == 0 && sent_ < kClean) return false;
    if (!was_lossy && sent_ < kJudged) return false;
    times_ = lost_ * kTolerable > sent_ ? times_ + 1 : 0;
    is_lossy_ = was_lossy ? lost_ > 0 : times_ == kTimes;
    sent_ = lost_ = 0;
    return is_lossy_ != was_lossy;
  }

  bool is_lossy() const { return is_lossy_; }

 private:
  static constexpr uint64_t kJudged = 128;    // packets
  static constexpr uint64_t kClean = 64;      // packets: of as many one in twenty is rarely none
  static constexpr uint64_t kTolerable = 32;  // one packet in so many
  // As often in a row must more be lost: when several hosts send to one at a time, a switch's queue
  // loses dozens of packets, but their senders slow down then.
  static constexpr int kTimes = 2;

  Link::Packets last_;
  uint64_t sent_ = 0, lost_ = 0;  // since it was last judged
  int times_ = 0;                 // that more than is tolerable was lost, in a row
  bool is_lossy_ = false;
};

}  // namespace nezha
