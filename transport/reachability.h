// SPDX-License-Identifier: Apache-2.0
// Whether the peer of a channel is still there and can be reached, by what all of the pair's rails
// show together.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "transport/contact.h"
#include "transport/ports.h"

namespace nezha {

// Under Progress's lock.
class Reachability {
 public:
  Reachability(Ports& ports, const Contact& contact) : ports_(ports), contact_(contact) {}

  // All links have died, and it is to be found out why.
  void lost(Nanos time) { lost_at_ = time; }
  // There is a link, or it is known why there is none.
  void settled() { lost_at_ = 0; }
  bool is_lost() const { return lost_at_ != 0; }

  // Why the peer cannot be waited for any more; OK: it can. To be asked where no link is up and the
  // peer has not left. `is_in_use`: somebody here waits for it.
  absl::Status verdict(Nanos time, bool is_in_use) const;
  // Whether the peer's process has ended: each rail that can show so does; see Refusals.
  bool is_shown_dead(Nanos time) const;
  // Whether no rail reaches the peer, or all lose what is sent by them though its machine is there.
  bool is_cut_off() const;
  // Whether the peer is connected, and has not answered for a while by any link, though no path is
  // known to be at fault.
  bool is_silent() const;
  // The state of each rail, and what may be behind it, for errors.
  std::string describe() const;

 private:
  bool is_hopeless(Nanos time) const;
  bool is_refused() const;

  // How long the death of a peer that nobody here waits for is kept back: others may be in an
  // operation that it has completed, and that they will, too.
  static constexpr Nanos kBadNews = 500 * kMillisecond;

  Ports& ports_;
  const Contact& contact_;
  Nanos lost_at_ = 0;  // 0: not so
};

}  // namespace nezha
