// SPDX-License-Identifier: Apache-2.0
// A channel: one pair of processes, over all links between them. It spreads messages over the
// links. The death of a link costs a resend and nothing else.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/unique_id.h"
#include "transport/channel_owner.h"
#include "transport/contact.h"
#include "transport/context_news.h"
#include "transport/deferred.h"
#include "transport/inbox.h"
#include "transport/link.h"
#include "transport/outbox.h"
#include "transport/ports.h"
#include "transport/progress.h"
#include "transport/rate_bursts.h"
#include "transport/reachability.h"
#include "transport/scheduler.h"

namespace nezha {

// A channel ties its parts together: Ports make the links and judge them, Outbox and Inbox have the
// messages, the Scheduler assigns segments to links, ContextNews exchanges news of the contexts
// that the two processes share, Reachability decides whether the peer is there, and RateBursts
// shows the rates that messages do not show. The channel decides what the coming or going of a link
// means to each part.
//
// All calls are made under Progress's lock.
class Channel final : LinkOwner {
 public:
  Channel(ChannelOwner& owner, const UniqueId& peer);
  ~Channel();

  const UniqueId& peer() const { return contact_.peer(); }
  // Adds what the peer has published: its description, for messages; a context that both are in;
  // and, by this end's name of each rail, the address of the peer's device and the peer's name of
  // the rail if that is another. May be called again for another context.
  void set_peer(std::string description, const UniqueId& job,
                const std::map<std::string, std::string>& addresses,
                const std::map<std::string, std::string>& peer_names = {});

  // Enters a context that both are in, if it is not known yet. The peer is told that this process
  // is in it: another context may have connected the two, and the peer is to hear if this one
  // breaks.
  void join(const UniqueId& job) { news_.enter(job); }

  // These send and receive; see Outbox and Inbox.
  OutMessage* open(const wire::MessageInfo& info, const Route& route, Sender* sender);
  void announce(OutMessage& message);
  void push(OutMessage& message, uint64_t offset, const std::byte* data, size_t length,
            Rail rail = kAnyRail);
  void settle(OutMessage& message);
  void abandon(OutMessage& message) noexcept;
  Inbox::Ticket* post(const wire::MessageInfo& info, Receiver* receiver, bool asks = false);
  std::optional<Nanos> waiting_since(uint64_t context, uint64_t tag) const {
    return inbox_.waiting_since(context, tag);
  }
  void cancel(Inbox::Ticket* ticket) noexcept;
  void set_awaited(Inbox::Ticket* ticket, bool is_awaited);
  // This process has closed the context: what comes for it is dropped. The peer is told once it has
  // acknowledged everything that was sent for the context. Until then connections are made in its
  // name.
  void leave(const UniqueId& job) { news_.close(job); }
  bool is_in(const UniqueId& job) const { return news_.contains(job); }

  // Tells the peer that a context is broken, if the two are connected and both in it.
  void send_abort(const wire::Abort& abort) { news_.send_abort(abort); }
  void send_roll_call(const wire::RollCall& call) { news_.send_roll_call(call); }

  // The peer has connected: the answer to its Hello, and later the link if the answer accepts it.
  wire::Welcome on_hello(Rail rail, const wire::Hello& hello);
  void on_accepted(Rail rail, const wire::Hello& hello, std::unique_ptr<Link> link);
  // The device can carry something again, or nothing any more, for the reason `why`.
  void on_carrier(Rail rail, bool up, absl::string_view why = "the interface lost its carrier");
  // Asks the peer by that rail whether it is there, unless there is no link or a question is open.
  void ask(Rail rail) { ask(ports_.at(rail)); }

  // Says goodbye. `drained`: the peer has acknowledged all that it needs, or never will.
  void say_goodbye() { news_.say_goodbye(); }
  bool drained() const;
  void shut_down() {
    ports_.for_each([](Port& port) { port.shut_down(); });
  }
  // Fails the channel, and from here on no link reads or writes anybody's memory. It is for use
  // when there is no memory to fail in good order.
  void stop(const absl::Status& why) noexcept;

  // Returns the state of each rail, and why there is no link on it, for errors.
  std::string describe() const { return reach_.describe(); }
  // Returns the rails that the peer has, and that have had no link for long although one was
  // wanted.
  RailMask long_missing() const { return ports_.long_missing(); }
  // Returns since when a rail that the peer has has had no link although one is wanted. Returns 0
  // if there is a link, or if there has never been one and it has not been missing for long.
  Nanos missing_since(Rail rail) const;
  // Returns the peer's name, and the reason that there is no link on the rail.
  std::string why_missing(Rail rail);
  // Returns whether there is a link on the rail and it is lossy.
  bool is_lossy(Rail rail) const {
    const Port* port = ports_.find(rail);
    return port != nullptr && port->is_lossy();
  }
  // Returns whether somebody waits for the peer and either no rail reaches it or all rails lose
  // what is sent, though the peer's machine is there.
  bool is_cut_off() const { return in_use() && reach_.is_cut_off(); }
  // Returns whether somebody waits for the peer, which is connected but has not answered by any
  // link for a while, though no path is known to be at fault.
  bool is_silent() const { return in_use() && reach_.is_silent(); }

  // Returns whether the peer has closed that context; left_error() says so.
  bool has_left(uint64_t context) const { return news_.has_left(context); }
  // Returns whether the peer has closed that context, or has said goodbye. A goodbye alone fails
  // nothing: messages may still be on their way by other links.
  bool has_left_in_order(uint64_t context) const {
    return news_.has_peer_left() || has_left(context);
  }
  absl::Status left_error() const { return news_.left_error(); }
  bool failed() const { return !failure_.ok(); }
  // Returns whether the peer is gone, cannot be reached any more, or has left that context.
  bool is_peer_lost(const UniqueId& job) const {
    return (failed() && !is_stopped_) || has_left(job.low);
  }
  // Returns whether the peer is gone or cannot be reached any more, and has not left in good order.
  bool is_peer_dead() const {
    if (news_.has_peer_left()) return false;
    return failed() ? !is_stopped_ : reach_.is_shown_dead(now());
  }
  const absl::Status& failure() const { return failure_; }
  RailMask up() const { return scheduler_.up(); }
  // Returns the bytes per second of all these rails together, as far as they are learned. The rails
  // are up.
  double rate(RailMask rails) const {
    double rate = 0;
    for_each_rail(rails, [&](Rail rail) { rate += scheduler_.learned_rate(rail); });
    return rate;
  }
  // Returns the rails that are up and not lossy, or all that are up if there are no others.
  RailMask preferred() const { return scheduler_.preferred(up()); }
  // Equals the peer's `consumed` when nothing is under way or held.
  uint64_t charged() const { return outbox_.charged(); }
  uint64_t consumed() const { return inbox_.consumed(); }

 private:
  // What a link is watched for even if nobody waits for a message.
  enum class Watch { kNothing, kAnswers, kSuspicion };

  // LinkOwner
  absl::StatusOr<std::byte*> on_segment(Link& link, const wire::FrameHeader& frame,
                                        const wire::DataHeader& data) override;
  Digest digest_of(Link& link) override { return inbox_.digest_of(link.rail()); }
  void on_landed(Link& link, bool is_digested) override;
  void on_written(Link& /*link*/, OutSegment& segment) override { outbox_.on_written(segment); }
  void on_acked(Link& link, OutSegment& segment) override;
  void on_frame(Link& link, const wire::FrameHeader& frame,
                absl::Span<const std::byte> body) override;
  void on_failed(Link& link, const absl::Status& why) override;
  uint64_t credit() const override { return inbox_.credit(); }

  // Returns whether the links must be looked after.
  bool wanted() const { return (reach_.is_lost() && news_.has_open()) || in_use(); }
  bool in_use() const { return outbox_.wanted() || inbox_.wanted() || outbox_.pending(); }
  // Returns whether a missing link is a fault: this process has addresses of the peer, neither of
  // them is about to end, and a context is well.
  bool is_missed() const { return contact_.has_addresses() && !failed() && news_.has_future(); }
  void need_links();
  void connect(Port& port);
  void on_connected(Port& port, absl::StatusOr<std::unique_ptr<Link>> link, uint32_t generation);
  void link_up(Port& port, std::unique_ptr<Link> link, uint64_t id, uint32_t generation);
  void land_digested(Link& link);
  void link_down(Port& port, const absl::Status& why, bool tell_peer);
  std::optional<wire::LinkDown> drop_link(Port& port, const absl::Status& why, bool tell_peer);
  void on_link_down(const Link& by, const wire::LinkDown& down);
  void check_peer();
  void fail(const absl::Status& why);
  void fail_soon();
  void pump();
  void housekeeping();
  void keep_house_soon();
  Watch watch_links(Nanos time);
  Watch watch(Port& port, Nanos time);
  void ask(Port& port);

  static constexpr Nanos kHousekeeping = 25 * kMillisecond;
  static constexpr Nanos kSuspense = 10 * kMillisecond;  // while a link is suspected

  ChannelOwner& owner_;
  Contact contact_;
  Scheduler scheduler_;
  Ports ports_;
  Outbox outbox_;
  Inbox inbox_;
  ContextNews news_;
  Reachability reach_;
  RateBursts bursts_;
  absl::Status failure_;
  bool is_stopped_ = false;  // stopped by this process, and the peer is not to blame
  Deferred pump_;
  Alarm housekeeping_;
};

}  // namespace nezha
