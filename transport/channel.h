// SPDX-License-Identifier: Apache-2.0
// A channel: one pair of processes over all links that live between them. It makes the links,
// spreads messages over them, and sees to it that a link's death costs a resend and nothing else.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/buffer_pool.h"
#include "common/clock.h"
#include "common/unique_id.h"
#include "transport/device.h"
#include "transport/inbox.h"
#include "transport/link.h"
#include "transport/loss.h"
#include "transport/outage.h"
#include "transport/outbox.h"
#include "transport/progress.h"
#include "transport/pulse.h"
#include "transport/refusals.h"
#include "transport/retry.h"
#include "transport/scheduler.h"
#include "transport/shared_contexts.h"

namespace nezha {

// How a process stands to a context.
enum class Membership {
  kUnknown,  // it has not entered the context, as far as it remembers
  kMember,
  kLeft,  // it has closed the context
};

// What a channel needs of its process.
class ChannelOwner {
 public:
  virtual Progress& progress() = 0;
  virtual BufferPool& pool() = 0;
  virtual const UniqueId& process() const = 0;
  virtual Device* device(Rail rail) = 0;  // null: there is none of that number
  virtual RailMask rails() const = 0;     // those that have a device
  virtual Membership membership(const UniqueId& job) const = 0;
  virtual void on_abort(const wire::Abort& abort) = 0;
  virtual void on_roll_call(const wire::RollCall& call) = 0;
  // The peer, which is in that context, has died.
  virtual void on_peer_gone(const UniqueId& job, const absl::Status& why) = 0;
  // A link on that rail may be dead, and those to other peers, too.
  virtual void on_suspicion(Rail rail) = 0;
  // The contexts of this process that broke lately: whoever connects is told.
  virtual const std::deque<wire::Abort>& aborts() const = 0;

 protected:
  ~ChannelOwner() = default;
};

// All of it under Progress's lock.
class Channel final : LinkOwner, InboxOwner {
 public:
  Channel(ChannelOwner& owner, const UniqueId& peer);
  ~Channel();

  const UniqueId& peer() const { return peer_; }
  // What the peer published: who it is, for messages; a context both are in; and, by this end's
  // name of the rail, where its devices are, and what it calls the rail if that is another name.
  // May come again, from another context.
  void set_peer(std::string description, const UniqueId& job,
                const std::map<std::string, std::string>& addresses,
                const std::map<std::string, std::string>& peer_names = {});

  // A context that both are in, if it is not known yet. The peer is told that this process is in
  // it: it may be connected by another context, and is to hear if this one breaks.
  void join(const UniqueId& job);

  // Sending and receiving; see Outbox and Inbox.
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
  // The context of that id is closed here: what comes for it is dropped. The peer is told once it
  // has acknowledged all that was sent for it; until then connections are made in its name.
  void leave(const UniqueId& job);
  bool is_in(const UniqueId& job) const { return contexts_.contains(job); }

  // Tells the peer that a context is broken, if the two are connected and both in it.
  void send_abort(const wire::Abort& abort);
  void send_roll_call(const wire::RollCall& call);

  // A connection the peer made: whether to keep it, and, if so, the connection.
  wire::Welcome on_hello(Rail rail, const wire::Hello& hello);
  void on_accepted(Rail rail, const wire::Hello& hello, std::unique_ptr<Link> link);
  // `why` the device can carry nothing, if it cannot.
  void on_carrier(Rail rail, bool up, absl::string_view why = "the interface lost its carrier");
  // Asks the peer by that rail whether it is there, if there is a link and no question is open.
  void ask(Rail rail);

  // Says goodbye. `drained` says whether the peer has acknowledged all that it needs, or never
  // will.
  void say_goodbye();
  bool drained() const;
  void shut_down();
  // The channel fails, and from here on no link reads or writes anybody's memory. For when there
  // is no memory to fail in good order.
  void stop(const absl::Status& why) noexcept;

  // The state of each rail, and why there is no link on it, for errors.
  std::string describe() const;
  // The rails that the peer has and that have not led to it for long, though it was spoken to.
  RailMask long_missing() const;
  // Since when there has been no link on the rail to a peer that is spoken to and has it; 0: there
  // is one, or was none yet, but has not been missing for long.
  Nanos missing_since(Rail rail) const;
  // The peer's name, and the reason that there is no link on the rail.
  std::string why_missing(Rail rail) const;
  // Whether there is a link on the rail, and it loses much.
  bool is_lossy(Rail rail) const {
    return port(rail).link != nullptr && port(rail).loss.is_lossy();
  }
  // Whether somebody waits for the peer, and no rail reaches it, or all lose what is sent by them
  // though the peer's machine is there.
  bool is_cut_off() const;

  // Whether the peer is waited for, is connected, and has not answered for a while by any link,
  // though no path is known to be at fault.
  bool is_silent() const;

  // Whether the peer has closed that context, and the error that says so.
  bool has_left(uint64_t context) const { return contexts_.has_left(context); }
  // Whether the peer has closed that context, or has said goodbye. A goodbye alone fails nothing:
  // messages may still be on their way by other links.
  bool has_left_in_order(uint64_t context) const { return peer_left_ || has_left(context); }
  absl::Status left_error() const;
  bool failed() const { return !failure_.ok(); }
  // Whether the peer is gone, cannot be reached any more, or has left that context.
  bool is_peer_lost(const UniqueId& job) const {
    return (failed() && !is_stopped_) || has_left(job.low);
  }
  // Whether the peer is gone or cannot be reached any more, and has not left in good order.
  bool is_peer_dead() const {
    return (failed() && !is_stopped_ && !peer_left_) || (!failed() && is_shown_dead(now()));
  }
  const absl::Status& failure() const { return failure_; }
  RailMask up() const { return scheduler_.up(); }
  // Bytes per second of all these rails, which are up, as far as it is learned.
  double rate(RailMask rails) const {
    double rate = 0;
    for_each_rail(rails, [&](Rail rail) { rate += scheduler_.learned_rate(rail); });
    return rate;
  }
  // Of these, those that do not lose much, if there are any.
  RailMask preferred() const { return scheduler_.preferred(up()); }
  // Equal to the peer's `consumed` when nothing is under way or held.
  uint64_t charged() const { return outbox_.charged(); }
  uint64_t consumed() const { return inbox_.consumed(); }

 private:
  // This channel's end of one rail, whether a link is up on it or not.
  struct Port {
    std::unique_ptr<Link> link;
    std::unique_ptr<Device::Attempt> attempt;
    Nanos attempt_at = 0;
    uint64_t attempt_id = 0;
    UniqueId attempt_job;
    uint32_t generation = 0;  // of the latest link or attempt
    uint32_t link_generation = 0;
    uint64_t last_link = 0;  // the id of the link that died last; 0: none has
    Retry retry;
    Pulse pulse;
    Loss loss;
    Nanos up_at = 0;
    Nanos judged_at = 0;  // by its losses
    bool has_been_up = false;
    Refusals refusals;
    Outage outage;
    Nanos still_since = 0;  // the link that was there before; 0: it did not stand still
    bool ack_due = false;
    bool is_bursting = false;  // the peer does not have all of a burst; see RateTrial
    Nanos burst_at = 0;
    double guessed = 0;  // the last guess of its rate
    absl::Status last_error;
  };

  // What the links are looked after for, though nobody waits for a message.
  enum class Watch { kNothing, kAnswers, kSuspicion };

  // LinkOwner
  absl::StatusOr<std::byte*> on_segment(Link& link, const wire::FrameHeader& frame,
                                        const wire::DataHeader& data) override;
  Digest digest_of(Link& link) override { return inbox_.digest_of(link.rail()); }
  void on_landed(Link& link, bool is_digested) override;
  void on_written(Link& link, OutSegment& segment) override;
  void on_acked(Link& link, OutSegment& segment) override;
  void on_frame(Link& link, const wire::FrameHeader& frame,
                absl::Span<const std::byte> body) override;
  void on_failed(Link& link, const absl::Status& why) override;
  uint64_t credit() const override { return inbox_.credit(); }
  // InboxOwner
  void send_grant(uint64_t number, Rail rail) override;
  bool drop_incoming(Rail rail, size_t nth) override;

  Port& port(Rail rail) { return ports_[static_cast<size_t>(rail)]; }
  const Port& port(Rail rail) const { return ports_[static_cast<size_t>(rail)]; }
  // Whether there is anything to look after.
  bool wanted() const { return (lost_at_ != 0 && has_open_context()) || in_use(); }
  bool in_use() const { return outbox_.wanted() || inbox_.wanted() || outbox_.pending(); }
  void tell_of_contexts();
  void on_joined(const UniqueId& job);
  void finish_leaving();
  void on_left(const UniqueId& job);
  void send_leave(const UniqueId& job);
  void repeat_news();
  void need_links();
  void connect(Rail rail);
  void on_connected(Rail rail, absl::StatusOr<std::unique_ptr<Link>> link, uint32_t generation);
  void link_up(Rail rail, std::unique_ptr<Link> link, uint64_t id, uint32_t generation);
  void land_digested(Link& link);
  void link_down(Rail rail, const absl::Status& why, bool tell_peer);
  bool drop_link(Rail rail, const absl::Status& why, bool tell_peer);
  void on_link_down(const Link& by, const wire::LinkDown& down);
  void log_link_up(Rail rail);
  static uint32_t lost_packet(const Port& port);
  void note_large_frames(Rail rail, uint32_t lost_packet, Outage::Way way);
  void note_passed(Rail rail, uint32_t bytes, Outage::Way way);
  void check_peer();
  bool is_shown_dead(Nanos time) const;
  RailMask usable() const;
  bool is_refused() const;
  std::string state_of(Rail rail) const;
  void tell_of_outages(Nanos time);
  bool is_missed() const;
  bool has_open_context() const {
    return contexts_.has_open([](const UniqueId&) { return true; });
  }
  bool is_broken(uint64_t context) const;
  void fail(const absl::Status& why);
  void fail_soon();
  void pump_soon();
  void ack_soon(Port& port);
  void housekeeping();
  Watch watch_links(Nanos time);
  void remake(Rail rail, Nanos time);
  static std::string trouble_of(const Port& port, bool with_time);
  void judge(Rail rail, Nanos time);
  void try_rate(Rail rail, Nanos time);
  void end_burst(Rail rail);
  double shown_rate(Rail rail) const;
  bool are_rates_known() const;
  bool is_bursting() const;
  bool is_connecting() const;
  Nanos siblings_heard(Rail rail) const;
  Link* best_link();
  bool is_last_resort() const;

  static constexpr Nanos kHousekeeping = 25 * kMillisecond;
  // How long the death of a peer that nobody here waits for is kept back: others may be in an
  // operation that it has completed, and that they will, too.
  static constexpr Nanos kBadNews = 500 * kMillisecond;
  // How long a process that leaves waits for an attempt to connect, longer than a handshake takes.
  static constexpr Nanos kConnectingTime = 100 * kMillisecond;
  static constexpr Nanos kSuspense = 10 * kMillisecond;  // while a link is suspected

  ChannelOwner& owner_;
  UniqueId peer_;
  SharedContexts contexts_;
  std::string description_;
  bool is_described_ = false;  // by set_peer(); until then nothing but its process is known
  std::map<std::string, std::string> addresses_;
  std::map<std::string, std::string> peer_names_;  // of rails, by this end's names
  std::array<Port, kMaxRails> ports_;
  Scheduler scheduler_;
  Outbox outbox_;
  Inbox inbox_;
  absl::Status failure_;
  bool peer_left_ = false;
  bool is_leaving_ = false;  // this process
  bool is_stopped_ = false;  // by this process, and the peer is not to blame
  Nanos lost_at_ = 0;        // all links had died by then, and it is to be found out why; 0: not so
  bool pump_due_ = false;
  bool ack_due_ = false;
  Alarm housekeeping_;
};

}  // namespace nezha
