// SPDX-License-Identifier: Apache-2.0
#include "transport/reachability.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace nezha {

absl::Status Reachability::verdict(Nanos time, bool is_in_use) const {
  if (is_shown_dead(time)) {
    if (!is_in_use && time - lost_at_ < kBadNews) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat(contact_.description(), " is gone: its connections have ended; ", describe()));
  }
  // If no rail has led to the peer for long, operations stop waiting for it, too.
  if (!is_in_use || !is_hopeless(time)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("no connection to ", contact_.description(),
                                             " could be made for ", Refusals::kHopeless / kSecond,
                                             " s: ", describe()));
}

bool Reachability::is_shown_dead(Nanos time) const {
  if (ports_.up() != 0) return false;
  RailMask witnesses = 0;
  RailMask agreeing = 0;
  for_each_rail(ports_.usable(), [&](Rail rail) {
    const Port& port = ports_.at(rail);
    if (port.refusals().is_witness(lost_at_)) witnesses |= rail_bit(rail);
    const bool is_known = !port.is_connecting();
    if (is_known && port.refusals().shows_end(time, lost_at_)) agreeing |= rail_bit(rail);
  });
  return witnesses != 0 && agreeing == witnesses;
}

bool Reachability::is_hopeless(Nanos time) const {
  const RailMask asked = ports_.usable();
  bool is_hopeless = asked != 0;
  for_each_rail(asked, [&](Rail rail) {
    const Port& port = ports_.at(rail);
    is_hopeless &= !port.is_connecting() && port.refusals().is_hopeless(time);
  });
  return is_hopeless;
}

// Returns whether every usable rail refuses connections, and none of them shows that the peer has
// ended.
bool Reachability::is_refused() const {
  const RailMask asked = ports_.usable();
  bool is_refused = asked != 0 && ports_.up() == 0;
  for_each_rail(asked, [&](Rail rail) {
    const Refusals& refusals = ports_.at(rail).refusals();
    is_refused &= refusals.is_refused() && !refusals.is_witness(lost_at_);
  });
  return is_refused;
}

bool Reachability::is_cut_off() const {
  return std::all_of(ports_.all().begin(), ports_.all().end(), [](const Port& port) {
    return port.link() == nullptr || port.trouble() == Pulse::Trouble::kLargeFrames;
  });
}

bool Reachability::is_silent() const {
  if (ports_.up() == 0) return false;
  return std::all_of(ports_.all().begin(), ports_.all().end(), [](const Port& port) {
    const Pulse::Trouble trouble = port.trouble();
    return port.link() == nullptr || trouble == Pulse::Trouble::kMachine ||
           trouble == Pulse::Trouble::kProcess;
  });
}

std::string Reachability::describe() const {
  std::string text = ports_.describe();
  if (is_refused()) {
    absl::StrAppend(&text,
                    "; either its process has ended, or a firewall of its host refuses "
                    "connections, or the rail is not a network that the hosts share (lo and "
                    "docker0 are not)");
  }
  return text;
}

}  // namespace nezha
