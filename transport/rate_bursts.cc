// SPDX-License-Identifier: Apache-2.0
#include "transport/rate_bursts.h"

#include <bit>

#include "common/log.h"

namespace nezha {

namespace {

// Returns the rate that another link or a trial has shown; 0 if none has.
double shown_rate(Device& device) {
  return device.counters().rate > 0 ? device.counters().rate : device.trial().rate();
}

}  // namespace

// If this link shows nothing of the rail's rate, the rate is guessed.
void RateBursts::look(Port& port, Nanos time) {
  Burst& burst = at(port);
  if (burst.is_under_way && time - burst.sent_at > RateTrial::kLongest) end(port);
  if (!scheduler_.is_guess(port.rail()) || std::popcount(ports_.up()) < 2) return;
  const double rate = shown_rate(port.device());
  if (rate > 0 && rate != burst.guessed && are_rates_known()) {
    scheduler_.guess(port.rail(), burst.guessed = rate);
  }
  if (is_due(port, time)) send(port);
}

// A link that may be dead, or is lossy, would show nothing either.
bool RateBursts::is_due(const Port& port, Nanos time) {
  if (port.device().counters().rate > 0 || port.is_suspected() || port.is_lossy()) return false;
  RateTrial& trial = port.device().trial();
  const uint64_t id = port.link()->id();
  trial.hold(id, time);
  if (at(port).is_under_way || port.is_asked()) return false;
  return trial.is_due(id, id ^ contact_.process().low, time);
}

void RateBursts::send(Port& port) {
  Burst& burst = at(port);
  burst.sent_at = now();
  burst.is_under_way = true;
  port.device().trial().sent(burst.sent_at);
  scheduler_.disturb(port.rail(), true);
  port.send_burst(RateTrial::kFrames, burst.sent_at);
}

void RateBursts::heard(Port& port) {
  if (at(port).is_under_way && port.link()->has_burst_arrived()) end(port);
}

void RateBursts::end(Port& port) {
  at(port).is_under_way = false;
  scheduler_.disturb(port.rail(), false);
  RateTrial& trial = port.device().trial();
  if (!trial.is_under_way(port.link()->id())) return;  // another link has the trial now
  trial.arrived(now());
  if (!trial.is_over()) return;
  log().debug("bursts to {} on {} went at {:.1f} MB/s", contact_.description(),
              port.device().name(), trial.rate() / 1e6);
}

// Acknowledgements wait behind the peer's burst.
void RateBursts::heard_filler(Port& port) {
  scheduler_.disturb(port.rail(), at(port).is_under_way);
  port.device().trial().disturbed(now());
}

// A rate that a trial has shown means nothing beside another rail's initial guess.
bool RateBursts::are_rates_known() const {
  bool are_known = true;
  ports_.for_each_up([&](const Port& port) {
    are_known &= !scheduler_.is_guess(port.rail()) || shown_rate(port.device()) > 0;
  });
  return are_known;
}

bool RateBursts::is_any_under_way() const {
  bool is_any = false;
  ports_.for_each_up([&](const Port& port) {
    const Burst& burst = bursts_[static_cast<size_t>(port.rail())];
    is_any = is_any || (burst.is_under_way && !port.link()->has_burst_arrived());
  });
  return is_any;
}

}  // namespace nezha
