// SPDX-License-Identifier: Apache-2.0
// The ports of a channel, one for each rail. Ports chooses the link for what is told to the peer,
// and answers for all ports together.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "transport/channel_owner.h"
#include "transport/contact.h"
#include "transport/deferred.h"
#include "transport/inbox.h"
#include "transport/port.h"
#include "transport/scheduler.h"
#include "transport/wire.h"

namespace nezha {

// The ports of one channel. All calls are made under Progress's lock.
class Ports final : public InboxOwner {
 public:
  Ports(ChannelOwner& owner, const Contact& contact, const Scheduler& scheduler);

  // Returns the port of a rail that has a device, which is made when it is first asked for.
  Port& at(Rail rail);
  // Returns the rail's port; null if it was not asked for yet.
  const Port* find(Rail rail) const;
  // Calls `f` for each port, including ports that come to be meanwhile.
  template <typename F>
  void for_each(F f) {
    for (Rail rail = 0; rail < static_cast<Rail>(ports_.size()); ++rail) f(at(rail));
  }
  // Calls `f` for each port that has a link.
  template <typename F>
  void for_each_up(F f) {
    for_each([&f](Port& port) {
      if (port.link() != nullptr) f(port);
    });
  }
  const std::deque<Port>& all() const { return ports_; }

  // ---- Telling the peer

  // Returns the fastest link of those that are well, or of all if none is well; null if no link is
  // up.
  Link* best_link() const;
  void tell(wire::FrameType type, absl::string_view body);
  // Tells the peer by every link: it may see the end of one before it reads what came by another.
  void tell_by_all(wire::FrameType type, absl::string_view body);
  void send_grant(uint64_t number, Rail rail) override;
  bool drop_incoming(Rail rail, size_t nth) override;
  // Acknowledges what came by that port's link, or by all, once the events at hand are handled.
  void ack_soon(Port& port);
  void ack_all_soon();
  // Acknowledges now.
  void ack_all();

  // ---- All ports together

  // Returns the rails by which the peer can be asked.
  RailMask usable();
  // Returns the rails that have a link.
  RailMask up() const { return scheduler_.up(); }
  // Returns whether no link of the pair is known to be well.
  bool is_last_resort() const;
  // Returns whether the peer may have accepted an attempt that this end knows nothing of yet.
  bool is_connecting() const;
  // Returns whether the peer's machine has all that was sent by one link at least.
  bool has_arrived_by_any() const;
  // Returns when anything last came by another port's link.
  Nanos heard_by_others(const Port& port) const;
  // Returns the rails that the peer has, and that have had no link for long although one was
  // wanted.
  RailMask long_missing() const;
  void tell_of_outages(Nanos time);
  // Returns the state of each rail.
  std::string describe();

 private:
  // How long a process that leaves waits for an attempt to connect: longer than a handshake takes.
  static constexpr Nanos kConnectingTime = 100 * kMillisecond;

  ChannelOwner& owner_;
  const Contact& contact_;
  const Scheduler& scheduler_;
  std::deque<Port> ports_;  // indexed by rail
  Deferred acks_;
};

}  // namespace nezha
