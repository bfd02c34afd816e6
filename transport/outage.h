// SPDX-License-Identifier: Apache-2.0
// Outage measures for how long there has been no link on a rail to a peer although one is wanted,
// and decides what the log reports of that at its default level.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/clock.h"

namespace nezha {

class Outage {
 public:
  // A link that is only being made comes up sooner. From then on the log reports the outage, and
  // plans do without the rail.
  static constexpr Nanos kLong = 2 * kSecond;
  // The log reports one outage, and its end, in so much time: a link may come and go for hours.
  static constexpr Nanos kQuiet = 10 * kSecond;

  // The way that frames take between this process and the peer.
  enum class Way { kTo, kFrom };

  // The link has died, or is wanted for the first time. Does nothing if it is missing already.
  void begin(Nanos time) {
    if (since_ == 0) since_ = time;
  }
  // There is a link. Returns whether the log is to say so, because it has reported the outage. On a
  // rail that loses large frames each new link comes up, which shows nothing.
  bool end() {
    since_ = 0;
    return lost_packet() == 0 && std::exchange(is_told_, false);
  }
  // Returns whether to report this outage now; the caller does so.
  bool tell(Nanos time) {
    if (is_told_ || (told_at_ != 0 && time - told_at_ < kQuiet)) return false;
    is_told_ = true;
    told_at_ = time;
    return true;
  }
  // A link passed small frames that way, and lost packets of up to `packet` bytes, more than 0.
  // Returns whether to report it now, even if the outage has been reported.
  bool lose_large(Way way, uint32_t packet, Nanos time) {
    const bool is_known = lost_packet() != 0;
    lost(way) = packet;
    if (is_known) return false;
    const bool is_quiet = large_told_at_ != 0 && time - large_told_at_ < kQuiet;
    is_told_ = true;
    if (!is_quiet) large_told_at_ = told_at_ = time;
    return !is_quiet;
  }
  // A segment of so many bytes has gone that way. Only one that is larger than the lost packets
  // shows that such packets get through. Returns whether large packets, which were lost until now,
  // are lost neither way any more.
  bool pass(Way way, uint32_t bytes) {
    if (lost(way) == 0 || bytes <= lost(way)) return false;
    lost(way) = 0;
    if (lost_packet() != 0) return false;
    is_told_ = false;
    return true;
  }
  // Returns the size of packets that are lost either way, in bytes; 0 if none are, as far as is
  // known.
  uint32_t lost_packet() const { return std::max(lost_[0], lost_[1]); }

  Nanos since() const { return since_; }  // 0: there is none
  bool is_long(Nanos time) const { return since_ != 0 && time - since_ >= kLong; }

 private:
  uint32_t& lost(Way way) { return lost_[static_cast<size_t>(way)]; }

  Nanos since_ = 0;
  Nanos told_at_ = 0;
  Nanos large_told_at_ = 0;
  bool is_told_ = false;
  std::array<uint32_t, 2> lost_{};  // bytes of a packet that is lost, for each way
};

}  // namespace nezha
