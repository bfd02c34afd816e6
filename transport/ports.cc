// SPDX-License-Identifier: Apache-2.0
#include "transport/ports.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/trace.h"

namespace nezha {

Ports::Ports(ChannelOwner& owner, const Contact& contact, const Scheduler& scheduler)
    : owner_(owner),
      contact_(contact),
      scheduler_(scheduler),
      acks_(owner.progress(), [this] { for_each([](Port& port) { port.flush_ack(); }); }) {}

Port& Ports::at(Rail rail) {
  const auto index = static_cast<size_t>(rail);
  while (ports_.size() <= index) {
    ports_.emplace_back(*owner_.device(static_cast<Rail>(ports_.size())), contact_);
  }
  return ports_[index];
}

const Port* Ports::find(Rail rail) const {
  const auto index = static_cast<size_t>(rail);
  return index < ports_.size() ? &ports_[index] : nullptr;
}

// ---- Telling the peer --------------------------------------------------------------------------

Link* Ports::best_link() const {
  const Port* best = nullptr;
  const auto merit = [this](const Port& candidate) {
    const bool is_well = !candidate.is_suspected() && !candidate.is_lossy();
    return std::pair(is_well, scheduler_.rate(candidate.rail()));
  };
  for (const Port& candidate : ports_) {
    if (candidate.link() == nullptr) continue;
    if (best == nullptr || merit(candidate) > merit(*best)) best = &candidate;
  }
  return best == nullptr ? nullptr : best->link();
}

void Ports::tell(wire::FrameType type, absl::string_view body) {
  if (Link* link = best_link()) link->send(type, body);
}

void Ports::tell_by_all(wire::FrameType type, absl::string_view body) {
  for_each_up([&](Port& port) { port.link()->send(type, body); });
}

void Ports::send_grant(uint64_t number, Rail rail) {
  const Port* port = rail == kAnyRail ? nullptr : find(rail);
  Link* asked = port == nullptr ? nullptr : port->link();
  if (Link* link = asked != nullptr ? asked : best_link())
    link->send(wire::FrameType::kGrant, wire::encode_number(number));
}

bool Ports::drop_incoming(Rail rail, size_t nth) {
  const Port* port = find(rail);
  Link* link = port == nullptr ? nullptr : port->link();
  if (link == nullptr) return true;
  if (!link->drop_incoming(nth)) return false;
  trace_step("dropped {:x} {}", link->id(), nth);
  return true;
}

void Ports::ack_soon(Port& port) {
  port.set_ack_due();
  acks_.soon();
}

void Ports::ack_all_soon() {
  for_each([this](Port& port) { ack_soon(port); });
}

void Ports::ack_all() {
  for_each_up([](Port& port) { port.link()->flush_ack(); });
}

// ---- What they are together --------------------------------------------------------------------

RailMask Ports::usable() {
  RailMask usable = 0;
  for_each_rail(owner_.rails(), [&](Rail rail) {
    if (at(rail).is_usable()) usable |= rail_bit(rail);
  });
  return usable;
}

bool Ports::is_last_resort() const {
  return std::all_of(ports_.begin(), ports_.end(), [](const Port& port) {
    return port.link() == nullptr || port.is_suspected();
  });
}

// If an attempt were given up, the peer would see a connection that ends without a goodbye.
bool Ports::is_connecting() const {
  const Nanos time = now();
  return std::any_of(ports_.begin(), ports_.end(), [time](const Port& port) {
    return port.is_connecting() && time - port.attempt_at() < kConnectingTime;
  });
}

bool Ports::has_arrived_by_any() const {
  return std::any_of(ports_.begin(), ports_.end(), [](const Port& port) {
    return port.link() != nullptr && port.link()->has_arrived();
  });
}

Nanos Ports::heard_by_others(const Port& port) const {
  Nanos heard = 0;
  for (const Port& other : ports_) {
    if (other.link() != nullptr && &other != &port) heard = std::max(heard, other.last_heard());
  }
  return heard;
}

RailMask Ports::long_missing() const {
  RailMask missing = 0;
  const Nanos time = now();
  for (const Port& port : ports_) {
    if (port.is_long_missing(time)) missing |= rail_bit(port.rail());
  }
  return missing;
}

void Ports::tell_of_outages(Nanos time) {
  for_each([time](Port& port) {
    if (port.link() == nullptr) port.tell_of_outage(time);
  });
}

std::string Ports::describe() {
  std::string text;
  for_each_rail(owner_.rails(), [&](Rail rail) {
    const Port& port = at(rail);
    absl::StrAppend(&text, text.empty() ? "" : "; ", port.device().name(), ": ", port.state());
  });
  return text;
}

}  // namespace nezha
