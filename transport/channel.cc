// SPDX-License-Identifier: Apache-2.0
#include "transport/channel.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/host.h"
#include "common/out_of_memory.h"
#include "transport/trace.h"

namespace nezha {

Channel::Channel(ChannelOwner& owner, const UniqueId& peer)
    : owner_(owner),
      contact_(owner.process(), peer),
      ports_(owner, contact_, scheduler_),
      outbox_(scheduler_, owner.pool()),
      inbox_(ports_, owner.pool()),
      news_(owner, contact_, ports_, outbox_, inbox_),
      reach_(ports_, contact_),
      bursts_(ports_, scheduler_, contact_),
      pump_(owner.progress(), [this] { pump(); }),
      housekeeping_(owner.progress(), [this] { housekeeping(); }) {}

// Links go first: a rail's thread may be writing to memory that the inbox holds.
Channel::~Channel() {
  ports_.for_each([](Port& port) { port.fence(); });
}

void Channel::set_peer(std::string description, const UniqueId& job,
                       const std::map<std::string, std::string>& addresses,
                       const std::map<std::string, std::string>& peer_names) {
  if (contact_.describe(std::move(description))) {
    ports_.for_each_up([](Port& port) { port.tell_up(); });
  }
  join(job);
  contact_.add(addresses, peer_names);
}

// ---- Sending and receiving ---------------------------------------------------------------------

OutMessage* Channel::open(const wire::MessageInfo& info, const Route& route, Sender* sender) {
  OutMessage* message = outbox_.open(info, route, sender);
  try {
    need_links();
    pump_.soon();
    if (failed()) fail_soon();
  } catch (...) {
    abandon(*message);  // the sender never gets the message
    throw;
  }
  return message;
}

void Channel::announce(OutMessage& message) {
  outbox_.announce(message);
  scheduler_.pump();
}

void Channel::push(OutMessage& message, uint64_t offset, const std::byte* data, size_t length,
                   Rail rail) {
  outbox_.push(message, offset, data, length, rail);
  scheduler_.pump();
}

void Channel::settle(OutMessage& message) {
  outbox_.settle(message);
  scheduler_.pump();
}

// The caller gives up memory, and cannot give up a part of it: neither this nor cancel() fails.
void Channel::abandon(OutMessage& message) noexcept {
  try {
    outbox_.abandon(message);
    pump_.soon();
  } catch (...) {
    stop(caught_status());
  }
}

Inbox::Ticket* Channel::post(const wire::MessageInfo& info, Receiver* receiver, bool asks) {
  pump_.soon();  // a rank that only receives looks after its links, too
  if (failed()) fail_soon();
  news_.fail_waiting_soon(info.context);
  return inbox_.post(info, receiver, asks);  // last: nothing after it may throw
}

void Channel::cancel(Inbox::Ticket* ticket) noexcept {
  try {
    inbox_.cancel(ticket);
  } catch (...) {
    stop(caught_status());
  }
}

void Channel::set_awaited(Inbox::Ticket* ticket, bool is_awaited) {
  inbox_.set_awaited(ticket, is_awaited);
  if (is_awaited) pump_.soon();
}

// Sends what acknowledgements have made room for.
void Channel::pump() {
  scheduler_.pump();
  news_.end_closed();
  if (!failed() && wanted()) keep_house_soon();
}

// ---- What the links report ---------------------------------------------------------------------

absl::StatusOr<std::byte*> Channel::on_segment(Link& link, const wire::FrameHeader& frame,
                                               const wire::DataHeader& data) {
  try {
    absl::StatusOr<std::byte*> place = inbox_.arrive(link.rail(), frame, data);
    trace_step("segment {:x} {} {} {} {}", link.id(), data.number, data.offset, frame.length,
               data.attempt);
    return place;
  } catch (const OutOfMemory& error) {
    // The link is in the middle of a read, so it fails in good order. Then the contexts break.
    owner_.progress().defer([error] { throw error; });
    return caught_status();
  }
}

void Channel::on_landed(Link& link, bool is_digested) {
  trace_step("landed {:x}", link.id());
  Port& port = ports_.at(link.rail());
  const Inbox::Landing landing = inbox_.next_to_land(link.rail());
  if (landing.is_ack_due) ports_.ack_soon(port);
  port.passed(landing.length, Outage::Way::kFrom);
  inbox_.landed(link.rail(), is_digested);
}

void Channel::on_acked(Link& link, OutSegment& segment) {
  trace_step("acked {:x} {} {} {}", link.id(), segment.header.number, segment.header.offset,
             segment.length);
  Port& port = ports_.at(link.rail());
  if (scheduler_.acknowledged(segment) && !scheduler_.is_guess(link.rail())) {
    port.device().counters().rate = scheduler_.learned_rate(link.rail());
  }
  port.passed(segment.length, Outage::Way::kTo);
  outbox_.on_acked(segment);
  pump_.soon();
}

void Channel::on_frame(Link& link, const wire::FrameHeader& frame,
                       absl::Span<const std::byte> body) {
  Port& port = ports_.at(link.rail());
  port.heard(frame.type);
  bursts_.heard(port);
  outbox_.on_credit(frame.credit);
  switch (frame.type) {
    case wire::FrameType::kData:
    case wire::FrameType::kAck:
      break;
    case wire::FrameType::kFiller:
      bursts_.heard_filler(port);
      break;
    case wire::FrameType::kPing:
      link.answer();
      break;
    case wire::FrameType::kGrant:
      if (const auto number = wire::decode_number(body); number.ok()) outbox_.on_grant(*number);
      break;
    case wire::FrameType::kLinkDown:
      if (const auto down = wire::decode_link_down(body); down.ok()) on_link_down(link, *down);
      break;
    case wire::FrameType::kGoodbye:
    case wire::FrameType::kAbort:
    case wire::FrameType::kLeave:
    case wire::FrameType::kJoin:
    case wire::FrameType::kRollCall:
      news_.on_frame(frame.type, body);
      break;
  }
  pump_.soon();
}

// The peer gave a link up.
void Channel::on_link_down(const Link& by, const wire::LinkDown& down) {
  ports_.for_each([&](Port& port) {
    const absl::Status why = port.peer_gave_up(down, by, is_missed());
    if (!why.ok()) link_down(port, why, /*tell_peer=*/false);
  });
}

void Channel::on_failed(Link& link, const absl::Status& why) {
  Port& port = ports_.at(link.rail());
  port.link_failed(why);
  link_down(port, why, /*tell_peer=*/true);
}

// ---- Making links ------------------------------------------------------------------------------

void Channel::need_links() {
  const RailMask missing = owner_.rails() & ~up();
  if (failed() || missing == 0) return;
  const Nanos time = now();
  for_each_rail(missing, [&](Rail rail) {
    Port& port = ports_.at(rail);
    if (port.is_due(time, ports_.is_last_resort())) connect(port);
  });
}

void Channel::connect(Port& port) {
  // Each attempt names another context, since the peer may have closed one of them already.
  const UniqueId* job = news_.next(port.generation() + 1);
  if (job == nullptr) return;
  port.connect(*job,
               [this, &port](absl::StatusOr<std::unique_ptr<Link>> link, uint32_t generation) {
                 on_connected(port, std::move(link), generation);
               });
}

void Channel::on_connected(Port& port, absl::StatusOr<std::unique_ptr<Link>> link,
                           uint32_t generation) {
  const absl::Status& why = link.status();
  port.attempt_ended(why);
  if (why.ok()) {
    news_.told(port.attempt_job());
    const auto dropped = drop_link(port, port.remade_error(), /*tell_peer=*/false);
    link_up(port, *std::move(link), port.attempt_id(), generation);
    // So far the peer has only seen that the link was made anew.
    if (dropped.has_value() && dropped->lost_packet != 0) {
      port.link()->send(wire::FrameType::kLinkDown, encode(*dropped));
    }
    return;
  }
  keep_house_soon();
  if (absl::IsNotFound(why)) news_.peer_left(port.attempt_job());
  if (absl::IsPermissionDenied(why) && !failed()) {
    return fail(absl::UnavailableError(absl::StrCat(contact_.description(),
                                                    " has given up its connections to ",
                                                    process_name(), ", and accepts no new one")));
  }
  check_peer();
}

wire::Welcome Channel::on_hello(Rail rail, const wire::Hello& hello) {
  return {failed() ? wire::WelcomeCode::kClosing : ports_.at(rail).answer(hello), wire::kVersion,
          hello.generation};
}

void Channel::on_accepted(Rail rail, const wire::Hello& hello, std::unique_ptr<Link> link) {
  Port& port = ports_.at(rail);
  news_.peer_entered(hello.job);  // this rank may not have contacted the peer yet
  port.give_up_attempt();
  drop_link(port, absl::UnavailableError("the peer made the link anew"), /*tell_peer=*/false);
  link_up(port, std::move(link), hello.link_id, hello.generation);
}

void Channel::link_up(Port& port, std::unique_ptr<Link> link, uint64_t id, uint32_t generation) {
  Device& device = port.device();
  reach_.settled();
  bursts_.begin(port);
  trace_step("up {:x} {} {} {}", id, port.rail(), fmt::ptr(&inbox_), fmt::ptr(&outbox_));
  port.link_up(std::move(link), this, id, generation);
  scheduler_.link_up(port.rail(), port.link(), device.counters().rate, device.traits());
  scheduler_.set_trust(port.rail(), port.trust(now()));
  inbox_.grant_again();
  news_.link_up(*port.link());
  port.tell_up();
  if (wanted()) ports_.for_each_up([this](Port& each) { bursts_.look(each, now()); });
  pump_.soon();
}

// ---- Losing links ------------------------------------------------------------------------------

void Channel::link_down(Port& port, const absl::Status& why, bool tell_peer) {
  if (!drop_link(port, why, tell_peer).has_value()) return;
  if (wanted()) need_links();
  check_peer();
}

// Returns what the peer is to hear of the link, if there was one. When a link is replaced, this
// alone is called, since its end shows nothing about the peer.
std::optional<wire::LinkDown> Channel::drop_link(Port& port, const absl::Status& why,
                                                 bool tell_peer) {
  if (port.link() == nullptr) return std::nullopt;
  const wire::LinkDown dropped = port.last_words(is_missed());
  land_digested(*port.link());  // first: it may send by this link
  std::deque<OutSegment*> orphans;
  scheduler_.link_down(port.rail(), orphans);
  port.link_down(why);
  trace_step("down {:x}", dropped.link);
  inbox_.link_gone(port.rail());
  port.device().counters().segments_resent += outbox_.resend(orphans);
  keep_house_soon();
  if (!news_.has_peer_left()) port.tell_down(why, is_missed());
  if (tell_peer) ports_.tell(wire::FrameType::kLinkDown, encode(dropped));
  news_.link_down();
  inbox_.grant_again();
  if (up() == 0 && !news_.has_peer_left() && news_.has_open()) reach_.lost(now());
  pump_.soon();
  return dropped;
}

// A segment that an ending link has read and digested counts as landed.
void Channel::land_digested(Link& link) {
  if (!link.halt()) return;
  try {
    on_landed(link, true);
  } catch (const std::bad_alloc&) {
    // The link ends in good order. Then the contexts break.
    owner_.progress().defer([why = std::current_exception()] { std::rethrow_exception(why); });
  }
}

void Channel::on_carrier(Rail rail, bool up, absl::string_view why) {
  Port& port = ports_.at(rail);
  if (up) {
    port.carrier_returned();
    if (wanted()) need_links();
    return;
  }
  port.give_up_attempt();
  link_down(port, absl::UnavailableError(why), /*tell_peer=*/true);
}

Nanos Channel::missing_since(Rail rail) const {
  const Port* port = ports_.find(rail);
  return port != nullptr && is_missed() ? port->missing_since(now()) : 0;
}

std::string Channel::why_missing(Rail rail) {
  return absl::StrCat(contact_.description(), ": ", ports_.at(rail).state());
}

// ---- Failure -----------------------------------------------------------------------------------

void Channel::check_peer() {
  if (failed() || up() != 0) return;
  const absl::Status verdict =
      news_.has_peer_left() ? left_error() : reach_.verdict(now(), in_use());
  if (!verdict.ok()) fail(verdict);
}

void Channel::fail(const absl::Status& why) {
  failure_ = why;
  reach_.settled();
  housekeeping_.cancel();
  fail_soon();
}

// This runs the users' code, which must not run inside of the caller.
void Channel::fail_soon() {
  owner_.progress().defer([this] {
    inbox_.fail(failure_);
    outbox_.fail(failure_);
    if (news_.has_peer_left()) return;
    for (const UniqueId& job : news_.open()) owner_.on_peer_gone(job, failure_);
  });
}

// ---- Looking after the links -------------------------------------------------------------------

void Channel::keep_house_soon() {
  if (!housekeeping_.armed()) housekeeping_.start(now() + kHousekeeping);
}

void Channel::housekeeping() {
  if (is_stopped_) return;  // a link may be there in part, for want of memory
  const Nanos time = now();
  scheduler_.reconsider(time);
  const Watch watch = watch_links(time);
  if (is_missed()) ports_.tell_of_outages(time);
  if (failed() || (!wanted() && watch == Watch::kNothing)) return;
  // Unacknowledged data of operations that have returned counts, too: the one link that is up may
  // be silent, and only another can show that.
  const bool is_sending = outbox_.wanted() || outbox_.pending();
  if (wanted() && (up() == 0 || is_sending)) need_links();
  check_peer();
  if (failed()) return;
  // A peer that nobody waits for may stand still for long without harm.
  const bool is_urgent = watch == Watch::kSuspicion && wanted();
  housekeeping_.start(time + (is_urgent ? kSuspense : kHousekeeping));
}

Channel::Watch Channel::watch_links(Nanos time) {
  Watch most = Watch::kNothing;
  ports_.for_each_up([&](Port& port) { most = std::max(most, watch(port, time)); });
  return most;
}

// Finds out whether the link has fallen silent; see Pulse. A lossy link gets only pings, which show
// when it loses nothing any more.
Channel::Watch Channel::watch(Port& port, Nanos time) {
  scheduler_.set_trust(port.rail(), port.trust(time));
  if (port.judge_losses(time)) {
    scheduler_.avoid(port.rail(), port.is_lossy());
    pump_.soon();
  }
  if (port.is_lossy()) port.ping();
  if (wanted()) bursts_.look(port, time);
  // Not everything that a link can lose is acknowledged at once, and a grant is not acknowledged at
  // all. So a link by which nothing has come for a while is asked as long as somebody waits.
  if (wanted() && time - port.last_heard() > kHousekeeping) ask(port);
  const bool was_suspected = port.is_suspected();
  const Pulse::State state =
      port.look(scheduler_.waiting_since(port.rail()), ports_.heard_by_others(port), time);
  if (state == Pulse::State::kWell) {
    port.give_up_attempt();  // the link need not be made anew
    return port.is_asked() ? Watch::kAnswers : Watch::kNothing;
  }
  if (!was_suspected) {
    ports_.for_each([this](Port& each) { ask(each); });
    owner_.on_suspicion(port.rail());
  }
  if (state == Pulse::State::kDead) {
    link_down(port, port.silence_error(), /*tell_peer=*/true);
    return Watch::kSuspicion;
  }
  // A lost frame is noticed, and sent again, only when the peer's machine gets a later one. Without
  // one, that takes longer than a silent link is given.
  port.ping();
  if (wanted() && ports_.is_last_resort() && port.is_to_be_remade(time)) connect(port);
  return Watch::kSuspicion;
}

void Channel::ask(Port& port) {
  if (port.ask()) keep_house_soon();
}

// ---- The end -----------------------------------------------------------------------------------

// Nobody needs the data that was sent for a broken context, but peers need to know why it broke: if
// a process ends before it has read all that came, its sockets lose what they have yet to send.
bool Channel::drained() const {
  const bool is_reachable = up() != 0 || news_.next(0) != nullptr;
  if (failed() || news_.has_peer_left() || !is_reachable) return true;
  // A goodbye would wait behind a burst.
  if (bursts_.is_any_under_way() || ports_.is_connecting()) return false;
  if (news_.is_any_pending()) return false;
  return up() == 0 || owner_.aborts().empty() || ports_.has_arrived_by_any();
}

void Channel::stop(const absl::Status& why) noexcept {
  if (std::exchange(is_stopped_, true)) return;  // what this defers may throw, too
  failure_ = why;
  ports_.for_each([](Port& port) { port.stop(); });
  try {
    fail_soon();
  } catch (const std::bad_alloc&) {
    // Threads that wait do so until their deadlines.
  }
}

}  // namespace nezha
