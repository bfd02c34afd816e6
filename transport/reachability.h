// SPDX-License-Identifier: Apache-2.0
// Decides whether the peer of a channel is still there and can be reached, by what all rails of the
// pair show together.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "transport/contact.h"
#include "transport/ports.h"

namespace nezha {

// Judges the peer of one channel. All calls are made under Progress's lock.
class Reachability {
 public:
  Reachability(Ports& ports, const Contact& contact) : ports_(ports), contact_(contact) {}

  // All links have died, and the reason is to be found out.
  void lost(Nanos time) { lost_at_ = time; }
  // There is a link, or it is known why there is none.
  void settled() { lost_at_ = 0; }
  bool is_lost() const { return lost_at_ != 0; }

  // Returns OK if the peer can still be waited for; otherwise the error says why it cannot. Callers
  // call this if no link is up and the peer has not left. `is_in_use` says whether somebody here
  // waits for the peer.
  absl::Status verdict(Nanos time, bool is_in_use) const;
  // Returns whether the peer's process has ended: each rail that can show that does; see Refusals.
  bool is_shown_dead(Nanos time) const;
  // Returns whether no rail reaches the peer, or all lose what is sent, though the peer's machine
  // is there.
  bool is_cut_off() const;
  // Returns whether the peer is connected but has not answered by any link for a while, though no
  // path is known to be at fault.
  bool is_silent() const;
  // Returns the state of each rail, and its likely cause, for errors.
  std::string describe() const;

 private:
  bool is_hopeless(Nanos time) const;
  bool is_refused() const;

  // How long the death of a peer that nobody here waits for is kept back: other ranks may be in an
  // operation that the peer has completed, and that they will complete, too.
  static constexpr Nanos kBadNews = 500 * kMillisecond;

  Ports& ports_;
  const Contact& contact_;
  Nanos lost_at_ = 0;  // 0: not all links are lost
};

}  // namespace nezha
