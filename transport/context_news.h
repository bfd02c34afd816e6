// SPDX-License-Identifier: Apache-2.0
// What two processes tell each other about the contexts that they share: who is in them, which are
// broken or closed, and that a process leaves all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/unique_id.h"
#include "transport/channel_owner.h"
#include "transport/contact.h"
#include "transport/inbox.h"
#include "transport/outbox.h"
#include "transport/ports.h"
#include "transport/shared_contexts.h"
#include "transport/wire.h"

namespace nezha {

// Exchanges the news. All calls are made under Progress's lock.
class ContextNews {
 public:
  ContextNews(ChannelOwner& owner, const Contact& contact, Ports& ports, const Outbox& outbox,
              Inbox& inbox)
      : owner_(owner), contact_(contact), ports_(ports), outbox_(outbox), inbox_(inbox) {}

  // ---- This process

  // This process is in the context. The peer is told.
  void enter(const UniqueId& job);
  // This process has closed the context: what comes for it is dropped. end_closed() tells the peer.
  void close(const UniqueId& job);
  // Tells the peer of the contexts that were closed here, once it has acknowledged all that was
  // sent for them.
  void end_closed();
  // This process leaves all contexts.
  void say_goodbye();
  // Tells the peer that a context is broken, if the peer is in it, too.
  void send_abort(const wire::Abort& abort);
  void send_roll_call(const wire::RollCall& call);

  // ---- The peer

  // The peer has connected for the context, or says that it is in it.
  void peer_entered(const UniqueId& job);
  // The peer has closed the context.
  void peer_left(const UniqueId& job);
  // A connection that names the context was accepted.
  void told(const UniqueId& job) { shared_.told(job); }
  // Handles a frame whose type is news of contexts.
  void on_frame(wire::FrameType type, absl::Span<const std::byte> body);

  // Tells the peer again, since what was sent by a link that died may have been lost, and a peer
  // that connects has heard nothing yet.
  void link_up(Link& link);
  void link_down();

  // ---- What is known

  bool contains(const UniqueId& job) const { return shared_.contains(job); }
  // Returns a context to connect for, another one at each turn; null if there is none.
  const UniqueId* next(uint32_t turn) const { return shared_.next(turn); }
  // Returns the contexts that neither has closed.
  std::vector<UniqueId> open() const { return shared_.open(); }
  bool has_open() const {
    return shared_.has_open([](const UniqueId&) { return true; });
  }
  // Returns whether one of the open contexts is well, and neither process leaves.
  bool has_future() const;
  // Returns whether the peer has yet to acknowledge what was sent for a context that is well.
  bool is_any_pending() const {
    return outbox_.pending_of([this](uint64_t context) { return !is_broken(context); });
  }
  bool has_left(uint64_t context) const { return shared_.has_left(context); }
  // The peer has left all contexts.
  bool has_peer_left() const { return has_peer_left_; }
  // Returns the error that says that the peer has left.
  absl::Status left_error() const;
  // If the peer has left the context, those who wait for its messages fail once the events at hand
  // are handled.
  void fail_waiting_soon(uint64_t context);

 private:
  bool is_broken(uint64_t context) const;
  void tell_of_entered();
  void tell_of_closed(const UniqueId& job);
  void repeat();

  ChannelOwner& owner_;
  const Contact& contact_;
  Ports& ports_;
  const Outbox& outbox_;
  Inbox& inbox_;
  SharedContexts shared_;
  bool is_leaving_ = false;  // this process is
  bool has_peer_left_ = false;
};

}  // namespace nezha
