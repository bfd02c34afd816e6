// SPDX-License-Identifier: Apache-2.0
// Refusals decides what a rail shows about whether the peer's process is still there.
#pragma once

#include "common/clock.h"
#include "transport/retry.h"

namespace nezha {

// A refused connection alone shows nothing: a firewall sends the same reset, and so does this host
// or another one if the address leads there. A rail shows that the process has ended if a link was
// up on it, the peer's end closed the link, and new connections are refused. A process behind a
// firewall may live though its address refuses connections, since it makes its links itself. So a
// process that has never answered at its address is given time to connect again. A process that
// ends closes all its connections at once, so a link that ended long before the pair lost its last
// one counts for nothing.
class Refusals {
 public:
  static constexpr Nanos kTimeToConnect = 500 * kMillisecond;
  static constexpr Nanos kTogether = kSecond;
  // If no rail leads to a peer, and each has refused for so long, operations stop waiting for it. A
  // process that crashed before its first link looks no different. A deadline of minutes would be
  // long for that, and a rank that can only connect itself is seldom that late.
  static constexpr Nanos kHopeless = 5 * kSecond;

  void link_up() {
    closed_at_ = 0;
    since_ = 0;
  }
  // `by_peer`: the peer's end closed the connection, or reset it, as a kernel does for a process
  // that has ended.
  void link_down(bool by_peer, Nanos time) {
    closed_at_ = by_peer ? time : 0;
    since_ = 0;
  }
  // The peer's process was found at its address.
  void answered() { is_known_ = true; }
  void attempt_failed(bool is_refused, Nanos time) {
    if (!is_refused) since_ = 0;
    // Nobody has tried for a while, so an earlier refusal shows nothing about that time.
    const bool is_stale = time - last_ > 2 * Retry::kLongestWait;
    if (is_refused && (since_ == 0 || is_stale)) since_ = time;
    last_ = time;
  }

  bool is_refused() const { return since_ != 0; }
  // Returns whether the rail can show the end of the process. `lost_at`: when the pair lost its
  // last link.
  bool is_witness(Nanos lost_at) const {
    return closed_at_ != 0 && closed_at_ + kTogether >= lost_at;
  }
  bool shows_end(Nanos time, Nanos lost_at) const {
    return is_witness(lost_at) && is_refused() && (is_known_ || time - since_ >= kTimeToConnect);
  }
  bool is_hopeless(Nanos time) const { return is_refused() && time - since_ >= kHopeless; }

 private:
  Nanos closed_at_ = 0;    // when the peer's end closed the last link; 0: it did not
  bool is_known_ = false;  // the address leads to the peer's process
  Nanos last_ = 0;         // the last attempt that failed
  Nanos since_ = 0;        // all attempts since then were refused; 0: the last one was not
};

}  // namespace nezha
