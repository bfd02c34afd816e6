// SPDX-License-Identifier: Apache-2.0
// Bursts that show the rates of a pair's rails if its messages do not; see RateTrial.
#pragma once

#include <array>

#include "common/clock.h"
#include "transport/contact.h"
#include "transport/ports.h"
#include "transport/scheduler.h"

namespace nezha {

// Each pair has one. All pairs share a rail's trial, which belongs to its device. All calls are
// made under Progress's lock.
class RateBursts {
 public:
  RateBursts(Ports& ports, Scheduler& scheduler, const Contact& contact)
      : ports_(ports), scheduler_(scheduler), contact_(contact) {}

  // The port has another link.
  void begin(Port& port) { at(port) = {}; }
  // Callers call this now and then for each link while it is wanted.
  void look(Port& port, Nanos time);
  // A frame has come by the link.
  void heard(Port& port);
  // A part of a burst of the peer's has come by the link.
  void heard_filler(Port& port);
  // Returns whether any burst is on its way. Looks at the links: when nobody waits, nothing may
  // come by them that would show it.
  bool is_any_under_way() const;

 private:
  struct Burst {
    bool is_under_way = false;  // the peer does not have all of it
    Nanos sent_at = 0;
    double guessed = 0;  // the last guess of the rail's rate
  };

  Burst& at(const Port& port) { return bursts_[static_cast<size_t>(port.rail())]; }
  bool is_due(const Port& port, Nanos time);
  void send(Port& port);
  void end(Port& port);
  bool are_rates_known() const;

  Ports& ports_;
  Scheduler& scheduler_;
  const Contact& contact_;
  std::array<Burst, kMaxRails> bursts_;  // indexed by rail
};

}  // namespace nezha
