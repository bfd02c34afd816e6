// SPDX-License-Identifier: Apache-2.0
// Retry decides when a rail to a peer is tried again after a link on it has died, and how far it is
// trusted.
#pragma once

#include "common/clock.h"

namespace nezha {

// Attempts to connect that fail are made less and less often. A link that dies soon after it came
// back is left alone for longer and longer, whatever attempts would bring, unless the pair has no
// other link. All these times vary at random by up to a quarter, so that not all ranks connect at
// once when a switch is back.
class Retry {
 public:
  static constexpr Nanos kFirst = 20 * kMillisecond;
  static constexpr Nanos kLongestWait = 2 * kSecond;   // failed attempts double the wait up to this
  static constexpr Nanos kLongestRest = 30 * kSecond;  // deaths quadruple the rest up to this
  // A link that lives so long, and four times as long as it was left alone, is well, and earlier
  // deaths are forgiven.
  static constexpr Nanos kWell = 10 * kSecond;
  // The part of its rate that a link gets at first after it has come back; it doubles every
  // kTrustDoubles.
  static constexpr double kFirstTrust = 1.0 / 8;
  static constexpr Nanos kTrustDoubles = 100 * kMillisecond;

  void link_up(Nanos time);
  void link_died(Nanos time);
  void attempt_failed(Nanos time);
  // The interface has its carrier again: an attempt may succeed now.
  void carrier_returned() { attempt_at_ = 0; }

  // Returns whether to connect now; `is_last_resort`: the pair has no link.
  bool due(Nanos time, bool is_last_resort) const;
  // Returns the part of its rate that the link is given, 0 to 1.
  double trust(Nanos time) const;

 private:
  Nanos wait_ = 0;  // the wait after the last failure; 0: there was none
  Nanos attempt_at_ = 0;
  Nanos rest_ = 0;  // the rest after the last death; 0: there was none
  Nanos rest_until_ = 0;
  Nanos up_since_ = 0;
};

}  // namespace nezha
