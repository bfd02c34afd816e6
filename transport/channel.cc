// SPDX-License-Identifier: Apache-2.0
#include "transport/channel.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/host.h"
#include "common/log.h"
#include "common/out_of_memory.h"
#include "transport/trace.h"

namespace nezha {

namespace {

// What a peer says of its own accord, as it does of each new link, shows that its process runs, and
// not that anything has reached it.
bool is_answer(wire::FrameType type) {
  switch (type) {
    case wire::FrameType::kPing:
    case wire::FrameType::kFiller:
    case wire::FrameType::kJoin:
    case wire::FrameType::kLeave:
    case wire::FrameType::kAbort:
      return false;
    default:
      return true;
  }
}

std::string large_frames(uint32_t packet) {
  return absl::StrCat("large frames (packets of up to ", packet, " bytes)");
}

std::string large_are_lost(uint32_t packet, absl::string_view since = "") {
  return absl::StrCat(large_frames(packet), " have not got through", since,
                      ", though small ones have; check the MTU of the path");
}

// Bytes; 1 where the link cannot tell.
uint32_t largest_packet(const Link& link) {
  return std::max(1u, static_cast<uint32_t>(link.largest_packet()));
}

absl::string_view name_of(Outage::Way way) { return way == Outage::Way::kTo ? "to" : "from"; }

}  // namespace

Channel::Channel(ChannelOwner& owner, const UniqueId& peer)
    : owner_(owner),
      peer_(peer),
      description_(absl::StrCat("process ", peer.str())),
      outbox_(scheduler_, owner.pool()),
      inbox_(*this, owner.pool()),
      housekeeping_(owner.progress(), [this] { housekeeping(); }) {}

// Links first: a rail's thread may be writing to what the inbox holds.
Channel::~Channel() {
  for (Port& port : ports_) port.link.reset();
}

void Channel::set_peer(std::string description, const UniqueId& job,
                       const std::map<std::string, std::string>& addresses,
                       const std::map<std::string, std::string>& peer_names) {
  description_ = std::move(description);
  if (!std::exchange(is_described_, true)) {
    for_each_rail(up(), [this](Rail rail) { log_link_up(rail); });
  }
  join(job);
  for (const auto& [rail, address] : addresses) addresses_[rail] = address;
  for (const auto& [rail, name] : peer_names) peer_names_[rail] = name;
}

// ---- The contexts that both are in -------------------------------------------------------------

void Channel::join(const UniqueId& job) {
  if (contexts_.enter(job)) tell_of_contexts();
}

void Channel::tell_of_contexts() {
  Link* link = best_link();
  if (link == nullptr) return;
  const auto is_member = [this](const UniqueId& id) {
    return owner_.membership(id) == Membership::kMember;
  };
  for (const UniqueId& id : contexts_.take_untold(is_member)) {
    link->send(wire::FrameType::kJoin, wire::encode_id(id));
  }
}

// The peer is in that context, as it says itself. This process may have closed the context, which
// the peer is told then.
void Channel::on_joined(const UniqueId& job) {
  const Membership here = owner_.membership(job);
  contexts_.peer_entered(job, here == Membership::kMember);
  if (here == Membership::kLeft) leave(job);
  for (const wire::Abort& abort : owner_.aborts()) {
    if (abort.context == job) send_abort(abort);
  }
}

void Channel::leave(const UniqueId& job) {
  inbox_.close_context(job.low);
  contexts_.close(job);
  finish_leaving();
}

void Channel::finish_leaving() {
  const auto is_pending = [this](uint64_t context) {
    return outbox_.pending_of([context](uint64_t of) { return of == context; });
  };
  for (const UniqueId& id : contexts_.end_closed(is_pending)) {
    for (Port& each : ports_) {
      if (each.link != nullptr) each.link->flush_ack();  // the peer may wait for no more than that
    }
    send_leave(id);
  }
}

void Channel::on_left(const UniqueId& job) {
  contexts_.peer_left(job);
  inbox_.fail_context(job.low, left_error());
}

absl::Status Channel::left_error() const {
  return absl::UnavailableError(absl::StrCat(
      description_, peer_left_ ? " has left: its process has ended, or closed all its contexts"
                               : " has left: it closed its context"));
}

// ---- Sending and receiving ---------------------------------------------------------------------

OutMessage* Channel::open(const wire::MessageInfo& info, const Route& route, Sender* sender) {
  OutMessage* message = outbox_.open(info, route, sender);
  try {
    need_links();
    pump_soon();
    if (failed()) fail_soon();
  } catch (...) {
    abandon(*message);  // the sender never gets it
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

// Its caller gives up memory, which may not be had in part: neither this nor cancel() fails.
void Channel::abandon(OutMessage& message) noexcept {
  try {
    outbox_.abandon(message);
    pump_soon();
  } catch (...) {
    stop(caught_status());
  }
}

Inbox::Ticket* Channel::post(const wire::MessageInfo& info, Receiver* receiver, bool asks) {
  pump_soon();  // a rank that only listens looks after its links too
  if (failed()) fail_soon();
  if (has_left(info.context)) {
    owner_.progress().defer([this, context = info.context] {
      if (has_left(context)) inbox_.fail_context(context, left_error());
    });
  }
  return inbox_.post(info, receiver, asks);  // last: the receiver would not get it
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
  if (is_awaited) pump_soon();
}

// What is to be done once for many events, and not from inside of a link's call: sending what the
// acknowledgements made room for.
void Channel::pump_soon() {
  if (pump_due_) return;
  owner_.progress().defer([this] {
    pump_due_ = false;
    scheduler_.pump();
    finish_leaving();
    if (!failed() && wanted() && !housekeeping_.armed()) {
      housekeeping_.start(now() + kHousekeeping);
    }
  });
  pump_due_ = true;
}

void Channel::ack_soon(Port& port) {
  port.ack_due = true;
  if (ack_due_) return;
  owner_.progress().defer([this] {
    ack_due_ = false;
    for (Port& due : ports_) {
      if (due.ack_due && due.link != nullptr) due.link->flush_ack();
      due.ack_due = false;
    }
  });
  ack_due_ = true;
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
    // The link, which is in the midst of reading, fails in good order. Then the contexts break.
    owner_.progress().defer([error] { throw error; });
    return caught_status();
  }
}

void Channel::on_landed(Link& link, bool is_digested) {
  trace_step("landed {:x}", link.id());
  const Inbox::Landing landing = inbox_.next_to_land(link.rail());
  if (landing.is_ack_due) ack_soon(port(link.rail()));
  note_passed(link.rail(), landing.length, Outage::Way::kFrom);
  inbox_.landed(link.rail(), is_digested);
}

void Channel::on_written(Link&, OutSegment& segment) { outbox_.on_written(segment); }

void Channel::on_acked(Link& link, OutSegment& segment) {
  trace_step("acked {:x} {} {} {}", link.id(), segment.header.number, segment.header.offset,
             segment.length);
  if (scheduler_.acknowledged(segment) && !scheduler_.is_guess(link.rail())) {
    owner_.device(link.rail())->counters().rate = scheduler_.learned_rate(link.rail());
  }
  note_passed(link.rail(), segment.length, Outage::Way::kTo);
  outbox_.on_acked(segment);
  pump_soon();
}

void Channel::on_frame(Link& link, const wire::FrameHeader& frame,
                       absl::Span<const std::byte> body) {
  port(link.rail()).pulse.heard(now(), is_answer(frame.type));
  if (const Port& by = port(link.rail()); by.is_bursting && link.has_burst_arrived()) {
    end_burst(link.rail());
  }
  outbox_.on_credit(frame.credit);
  switch (frame.type) {
    case wire::FrameType::kData:
    case wire::FrameType::kAck:
      break;
    case wire::FrameType::kFiller:
      // Acknowledgements wait behind it.
      scheduler_.disturb(link.rail(), port(link.rail()).is_bursting);
      owner_.device(link.rail())->trial().disturbed(now());
      break;
    case wire::FrameType::kGrant: {
      const auto number = wire::decode_number(body);
      if (number.ok()) outbox_.on_grant(*number);
      break;
    }
    case wire::FrameType::kLinkDown: {
      const auto down = wire::decode_link_down(body);
      if (down.ok()) on_link_down(link, *down);
      break;
    }
    case wire::FrameType::kPing:
      link.answer();
      break;
    case wire::FrameType::kGoodbye:
      peer_left_ = true;
      for (Port& each : ports_) ack_soon(each);
      break;
    case wire::FrameType::kAbort: {
      const auto abort = wire::decode_abort(body);
      if (abort.ok()) owner_.on_abort(*abort);
      break;
    }
    case wire::FrameType::kLeave: {
      const auto job = wire::decode_id(body);
      if (job.ok()) on_left(*job);
      break;
    }
    case wire::FrameType::kJoin: {
      const auto job = wire::decode_id(body);
      if (job.ok()) on_joined(*job);
      break;
    }
    case wire::FrameType::kRollCall: {
      const auto call = wire::decode_roll_call(body);
      if (call.ok()) owner_.on_roll_call(*call);
      break;
    }
  }
  pump_soon();
}

void Channel::on_failed(Link& link, const absl::Status& why) {
  const Rail rail = link.rail();
  port(rail).refusals.link_down(/*by_peer=*/absl::IsUnavailable(why), now());
  link_down(rail, why, true);
}

void Channel::send_grant(uint64_t number, Rail rail) {
  Link* asked = rail == kAnyRail ? nullptr : port(rail).link.get();
  if (Link* link = asked != nullptr ? asked : best_link())
    link->send(wire::FrameType::kGrant, wire::encode_number(number));
}

bool Channel::drop_incoming(Rail rail, size_t nth) {
  Link* link = port(rail).link.get();
  if (link == nullptr) return true;
  if (!link->drop_incoming(nth)) return false;
  trace_step("dropped {:x} {}", link->id(), nth);
  return true;
}

// What a link that ends has read and digested has landed.
void Channel::land_digested(Link& link) {
  if (!link.halt()) return;
  try {
    on_landed(link, true);
  } catch (const OutOfMemory& error) {
    // The link ends in good order. Then the contexts break.
    owner_.progress().defer([error] { throw error; });
  }
}

// By every link, as goodbyes go: who reads one by any of them has read this before.
void Channel::send_abort(const wire::Abort& abort) {
  if (!is_in(abort.context) && !contexts_.is_closed(abort.context)) return;
  for (Port& each : ports_) {
    if (each.link != nullptr) each.link->send(wire::FrameType::kAbort, wire::encode(abort));
  }
}

// Of a context that broke the peer hears otherwise, and better.
void Channel::send_leave(const UniqueId& job) {
  Link* link = best_link();
  if (!is_broken(job.low) && link != nullptr) {
    link->send(wire::FrameType::kLeave, wire::encode_id(job));
  }
}

// What went by a link that died may have been lost, and who connects has heard nothing yet.
void Channel::repeat_news() {
  for (const wire::Abort& abort : owner_.aborts()) send_abort(abort);
  for (const UniqueId& job : contexts_.closed()) send_leave(job);
  tell_of_contexts();
}

void Channel::send_roll_call(const wire::RollCall& call) {
  if (!is_in(call.context)) return;
  if (Link* link = best_link()) link->send(wire::FrameType::kRollCall, wire::encode(call));
}

// The fastest of those that are well, if any is.
Link* Channel::best_link() {
  const Port* best = nullptr;
  const auto merit = [this](const Port& candidate) {
    const bool is_well = !candidate.pulse.is_suspected() && !candidate.loss.is_lossy();
    return std::pair(is_well, scheduler_.rate(candidate.link->rail()));
  };
  for (const Port& candidate : ports_) {
    if (candidate.link == nullptr) continue;
    if (best == nullptr || merit(candidate) > merit(*best)) best = &candidate;
  }
  return best == nullptr ? nullptr : best->link.get();
}

// ---- Making links ------------------------------------------------------------------------------

void Channel::need_links() {
  const RailMask missing = owner_.rails() & ~up();
  if (failed() || missing == 0) return;
  const Nanos time = now();
  for_each_rail(missing, [&](Rail rail) {
    Port& candidate = port(rail);
    if (candidate.attempt != nullptr) return;
    if (addresses_.contains(owner_.device(rail)->name())) candidate.outage.begin(time);
    if (candidate.retry.due(time, is_last_resort())) connect(rail);
  });
}

// No link of the pair is known to be well.
bool Channel::is_last_resort() const {
  return std::all_of(ports_.begin(), ports_.end(), [](const Port& each) {
    return each.link == nullptr || each.pulse.is_suspected();
  });
}

void Channel::connect(Rail rail) {
  Port& to = port(rail);
  Device* device = owner_.device(rail);
  // Each attempt names another: the peer may have closed one of them already.
  const UniqueId* job = contexts_.next(to.generation + 1);
  if (device == nullptr || !device->carrier() || job == nullptr) return;
  const auto address = addresses_.find(device->name());
  if (address == addresses_.end()) return;
  to.generation += 1;
  to.attempt_at = now();
  to.attempt_id = UniqueId::random().low;
  wire::Hello hello;
  hello.job = to.attempt_job = *job;
  hello.source = owner_.process();
  hello.target = peer_;
  hello.link_id = to.attempt_id;
  hello.generation = to.generation;
  const auto peer_name = peer_names_.find(device->name());
  hello.rail = peer_name == peer_names_.end() ? device->name() : peer_name->second;
  to.attempt = device->connect(
      address->second, hello,
      [this, rail](absl::StatusOr<std::unique_ptr<Link>> link, uint32_t generation) {
        on_connected(rail, std::move(link), generation);
      });
}

void Channel::on_connected(Rail rail, absl::StatusOr<std::unique_ptr<Link>> link,
                           uint32_t generation) {
  Port& to = port(rail);
  to.attempt.reset();
  const absl::Status& why = link.status();
  const bool is_answer = absl::IsAlreadyExists(why) || absl::IsNotFound(why);
  if (why.ok() || is_answer) to.refusals.answered();
  if (why.ok()) {
    contexts_.told(to.attempt_job);
    const uint64_t replaced = to.link == nullptr ? 0 : to.link->id();
    const uint32_t lost_packet = this->lost_packet(to);
    const std::string trouble = to.link == nullptr ? "" : trouble_of(to, false);
    drop_link(rail,
              absl::DeadlineExceededError(trouble.empty() ? "it was made anew"
                                                          : trouble + "; it was made anew"),
              false);
    link_up(rail, *std::move(link), to.attempt_id, generation);
    // All that the peer has seen is that the link was made anew.
    if (lost_packet != 0)
      to.link->send(wire::FrameType::kLinkDown, encode(wire::LinkDown{replaced, lost_packet}));
    return;
  }
  log().debug("no link to {} on {}: {}", description_, owner_.device(rail)->name(),
              std::string(why.message()));
  to.last_error = why;
  to.refusals.attempt_failed(absl::IsUnavailable(why), now());
  to.retry.attempt_failed(now());
  if (!housekeeping_.armed()) housekeeping_.start(now() + kHousekeeping);
  if (absl::IsNotFound(why)) on_left(to.attempt_job);
  if (absl::IsPermissionDenied(why) && !failed()) {
    return fail(
        absl::UnavailableError(absl::StrCat(description_, " has given up its connections to ",
                                            process_name(), ", and accepts no new one")));
  }
  check_peer();
}

// Of two connections that cross, both sides keep the one of the higher generation, or, of equal
// ones, the one made by the process of the smaller id.
wire::Welcome Channel::on_hello(Rail rail, const wire::Hello& hello) {
  Port& to = port(rail);
  const auto answer = [&](wire::WelcomeCode code) {
    return wire::Welcome{code, wire::kVersion, hello.generation};
  };
  if (failed()) return answer(wire::WelcomeCode::kClosing);
  if (to.link != nullptr && hello.generation <= to.link_generation) {
    return answer(wire::WelcomeCode::kDuplicate);
  }
  if (to.attempt != nullptr && (hello.generation < to.generation ||
                                (hello.generation == to.generation && owner_.process() < peer_))) {
    return answer(wire::WelcomeCode::kDuplicate);
  }
  return answer(wire::WelcomeCode::kAccepted);
}

void Channel::on_accepted(Rail rail, const wire::Hello& hello, std::unique_ptr<Link> link) {
  Port& to = port(rail);
  on_joined(hello.job);  // this rank may not have spoken to the peer yet
  to.attempt.reset();
  drop_link(rail, absl::UnavailableError("the peer made the link anew"), false);
  link_up(rail, std::move(link), hello.link_id, hello.generation);
}

void Channel::link_up(Rail rail, std::unique_ptr<Link> link, uint64_t id, uint32_t generation) {
  Port& to = port(rail);
  Device* device = owner_.device(rail);
  to.attempt.reset();
  to.generation = to.link_generation = generation;
  to.refusals.link_up();
  lost_at_ = 0;
  to.retry.link_up(now());
  // After a longer gap the path may be another one.
  const bool is_successor = now() - to.outage.since() <= 2 * Retry::kLongestRest;
  to.pulse.begin(now(), is_successor ? to.still_since : 0);
  to.loss.begin();
  to.up_at = to.judged_at = now();
  to.is_bursting = false;
  to.guessed = 0;
  trace_step("up {:x} {} {} {}", id, rail, fmt::ptr(&inbox_), fmt::ptr(&outbox_));
  to.link = std::move(link);
  to.link->start(this, rail, id);
  scheduler_.link_up(rail, to.link.get(), device->counters().rate, device->traits());
  scheduler_.set_trust(rail, to.retry.trust(now()));
  inbox_.grant_again();
  repeat_news();
  if (is_leaving_) to.link->send(wire::FrameType::kGoodbye, {});
  if (to.has_been_up) device->counters().reconnections += 1;
  log_link_up(rail);
  to.has_been_up = true;
  if (wanted()) for_each_rail(up(), [this](Rail each) { try_rate(each, now()); });
  pump_soon();
}

// A peer that has connected, and that this process has not spoken to yet, is named once its name is
// known.
void Channel::log_link_up(Rail rail) {
  Port& to = port(rail);
  auto level = to.outage.end() ? spdlog::level::warn : spdlog::level::info;
  if (!is_described_) level = spdlog::level::debug;
  log().log(level, "the link to {} on {} is {}", description_, owner_.device(rail)->name(),
            to.last_link != 0 ? "up again" : "up");
}

void Channel::link_down(Rail rail, const absl::Status& why, bool tell_peer) {
  if (!drop_link(rail, why, tell_peer)) return;
  if (wanted()) need_links();
  check_peer();
}

// Returns whether there was a link. A link that is replaced ends by this alone: its end says
// nothing about the peer.
bool Channel::drop_link(Rail rail, const absl::Status& why, bool tell_peer) {
  Port& dead = port(rail);
  if (dead.link == nullptr) return false;
  Device* device = owner_.device(rail);
  const uint64_t id = dead.last_link = dead.link->id();
  const uint32_t lost_packet = this->lost_packet(dead);
  if (lost_packet != 0) note_large_frames(rail, lost_packet, Outage::Way::kTo);
  land_digested(*dead.link);  // first: what follows from it may go to this link
  std::deque<OutSegment*> orphans;
  scheduler_.link_down(rail, orphans);
  device->trial().lost(id);
  dead.link.reset();  // the fence: from here on it neither reads nor writes
  contexts_.tell_again();
  trace_step("down {:x}", id);
  inbox_.link_gone(rail);
  device->counters().segments_resent += outbox_.resend(orphans);
  dead.ack_due = false;
  dead.last_error = why;
  dead.outage.begin(now());
  dead.still_since = dead.pulse.still_since();
  dead.retry.link_died(now());
  if (!housekeeping_.armed()) housekeeping_.start(now() + kHousekeeping);
  if (!peer_left_) {
    device->counters().failures += 1;
    device->counters().last_failure = absl::StrCat(description_, ": ", std::string(why.message()));
    const bool is_news = is_missed() && dead.outage.tell(now());
    log().log(is_news ? spdlog::level::warn : spdlog::level::info,
              "the link to {} on {} is down: {}", description_, device->name(),
              std::string(why.message()));
  }
  if (tell_peer) {
    if (Link* link = best_link()) {
      link->send(wire::FrameType::kLinkDown, encode(wire::LinkDown{id, lost_packet}));
    }
  }
  repeat_news();
  inbox_.grant_again();
  if (scheduler_.up() == 0 && !peer_left_ && has_open_context()) lost_at_ = now();
  pump_soon();
  return true;
}

void Channel::on_carrier(Rail rail, bool up, absl::string_view why) {
  if (up) {
    port(rail).retry.carrier_returned();
    if (wanted()) need_links();
    return;
  }
  port(rail).attempt.reset();
  link_down(rail, absl::UnavailableError(why), true);
}

// ---- Failure -----------------------------------------------------------------------------------

// The peer is gone when each rail that can show so does; see Refusals.
bool Channel::is_shown_dead(Nanos time) const {
  if (scheduler_.up() != 0 || peer_left_) return false;
  RailMask witnesses = 0;
  RailMask agreeing = 0;
  for_each_rail(usable(), [&](Rail rail) {
    const Refusals& refusals = port(rail).refusals;
    if (refusals.is_witness(lost_at_)) witnesses |= rail_bit(rail);
    const bool is_known = port(rail).attempt == nullptr;
    if (is_known && refusals.shows_end(time, lost_at_)) agreeing |= rail_bit(rail);
  });
  return witnesses != 0 && agreeing == witnesses;
}

// Where no rail has led to the peer for long, nobody waits for it any more either.
void Channel::check_peer() {
  if (failed() || scheduler_.up() != 0) return;
  if (peer_left_) {
    fail(left_error());
    return;
  }
  const Nanos time = now();
  const RailMask asked = usable();
  RailMask hopeless = 0;
  for_each_rail(asked, [&](Rail rail) {
    const bool is_known = port(rail).attempt == nullptr;
    if (is_known && port(rail).refusals.is_hopeless(time)) hopeless |= rail_bit(rail);
  });
  if (is_shown_dead(time)) {
    if (!in_use() && time - lost_at_ < kBadNews) return;
    fail(absl::UnavailableError(
        absl::StrCat(description_, " is gone: its connections have ended; ", describe())));
  } else if (asked != 0 && hopeless == asked && in_use()) {
    fail(absl::UnavailableError(absl::StrCat("no connection to ", description_,
                                             " could be made for ", Refusals::kHopeless / kSecond,
                                             " s: ", describe())));
  }
}

// The rails by which the peer can be asked.
RailMask Channel::usable() const {
  RailMask usable = 0;
  for_each_rail(owner_.rails(), [&](Rail rail) {
    const Device* device = owner_.device(rail);
    if (device->carrier() && addresses_.contains(device->name())) usable |= rail_bit(rail);
  });
  return usable;
}

// Every usable rail refuses connections, and none of them shows that the peer has ended.
bool Channel::is_refused() const {
  bool is_refused = usable() != 0 && up() == 0;
  for_each_rail(usable(), [&](Rail rail) {
    const Refusals& refusals = port(rail).refusals;
    is_refused &= refusals.is_refused() && !refusals.is_witness(lost_at_);
  });
  return is_refused;
}

std::string Channel::state_of(Rail rail) const {
  const Device* device = owner_.device(rail);
  const Port& asked = port(rail);
  const auto address = addresses_.find(device->name());
  if (address == addresses_.end()) return "the peer has no such rail";
  if (asked.link != nullptr) {
    std::string trouble = trouble_of(asked, true);
    if (!trouble.empty()) return trouble;
    // That a link is up shows nothing of large frames.
    const uint32_t packet = asked.outage.lost_packet();
    return packet == 0 ? "connected" : large_are_lost(packet);
  }
  if (!asked.last_error.ok()) return std::string(asked.last_error.message());
  if (!device->carrier()) return "the interface has no carrier";
  return absl::StrCat("no answer yet from ", address->second);
}

std::string Channel::describe() const {
  std::string text;
  for_each_rail(owner_.rails(), [&](Rail rail) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", owner_.device(rail)->name(), ": ",
                    state_of(rail));
  });
  if (is_refused()) {
    absl::StrAppend(&text,
                    "; either its process has ended, or a firewall of its host refuses "
                    "connections, or the rail is not a network that the hosts share (lo and "
                    "docker0 are not)");
  }
  return text;
}

// Says why the link stands still; "" if it does not. Without the time, which goes on, where the
// words are kept.
std::string Channel::trouble_of(const Port& port, bool with_time) {
  const Nanos still = now() - port.pulse.still_since();
  const std::string since = with_time ? absl::StrCat(" for ", still / kMillisecond, " ms") : "";
  switch (port.pulse.trouble()) {
    case Pulse::Trouble::kNone:
      return "";
    case Pulse::Trouble::kLargeFrames:
      return large_are_lost(largest_packet(*port.link), since);
    case Pulse::Trouble::kMachine:
      return absl::StrCat("the peer's host has confirmed nothing", since);
    case Pulse::Trouble::kProcess:
      return absl::StrCat("the peer's host confirms what is sent, but its process has not answered",
                          since);
  }
  return "";
}

bool Channel::is_broken(uint64_t context) const {
  const auto& aborts = owner_.aborts();
  return std::any_of(aborts.begin(), aborts.end(),
                     [&](const wire::Abort& abort) { return abort.context.low == context; });
}

bool Channel::is_cut_off() const {
  return in_use() && std::all_of(ports_.begin(), ports_.end(), [](const Port& port) {
           return port.link == nullptr || port.pulse.trouble() == Pulse::Trouble::kLargeFrames;
         });
}

bool Channel::is_silent() const {
  if (!in_use() || up() == 0) return false;
  return std::all_of(ports_.begin(), ports_.end(), [](const Port& port) {
    const Pulse::Trouble trouble = port.pulse.trouble();
    return port.link == nullptr || trouble == Pulse::Trouble::kMachine ||
           trouble == Pulse::Trouble::kProcess;
  });
}

void Channel::fail(const absl::Status& why) {
  failure_ = why;
  lost_at_ = 0;
  housekeeping_.cancel();
  fail_soon();
}

// The users' code runs in what follows: not from inside of the caller.
void Channel::fail_soon() {
  owner_.progress().defer([this] {
    inbox_.fail(failure_);
    outbox_.fail(failure_);
    if (peer_left_) return;
    for (const UniqueId& id : contexts_.open()) owner_.on_peer_gone(id, failure_);
  });
}

void Channel::housekeeping() {
  if (is_stopped_) return;  // a link may be there in part, for want of memory
  const Nanos time = now();
  scheduler_.reconsider(time);
  const Watch watch = watch_links(time);
  tell_of_outages(time);
  if (failed() || (!wanted() && watch == Watch::kNothing)) return;
  // What a returned operation has left to the outbox counts, too: the one link that is up may be
  // silent, and only another can show that.
  const bool is_sending = outbox_.wanted() || outbox_.pending();
  if (wanted() && (scheduler_.up() == 0 || is_sending)) need_links();
  check_peer();
  if (failed()) return;
  // A peer that nobody waits for may stand still for long.
  const bool is_urgent = watch == Watch::kSuspicion && wanted();
  housekeeping_.start(time + (is_urgent ? kSuspense : kHousekeeping));
}

void Channel::ask(Rail rail) {
  Port& to = port(rail);
  if (to.link == nullptr || to.pulse.is_asked()) return;
  to.pulse.asked(now());
  to.link->send(wire::FrameType::kPing, {});
  if (!housekeeping_.armed()) housekeeping_.start(now() + kHousekeeping);
}

Nanos Channel::siblings_heard(Rail rail) const {
  Nanos heard = 0;
  for (const Port& other : ports_) {
    if (other.link == nullptr || other.link->rail() == rail) continue;
    heard = std::max(heard, other.pulse.last_heard());
  }
  return heard;
}

// A link that loses much is left alone, but for pings that show when it loses nothing any more.
void Channel::judge(Rail rail, Nanos time) {
  Port& judged = port(rail);
  const Nanos since = std::exchange(judged.judged_at, time);
  const Link::Packets packets = judged.link->health().packets;
  const bool is_new = time - judged.up_at < RateTrial::kLongest;
  if (is_new && owner_.device(rail)->trial().has_disturbed(since, time)) {
    judged.loss.pass_over(packets);
  } else if (judged.loss.look(packets)) {
    const bool is_lossy = judged.loss.is_lossy();
    scheduler_.avoid(rail, is_lossy);
    log().info("the link to {} on {} {}", description_, owner_.device(rail)->name(),
               is_lossy ? "loses frames: others are preferred" : "loses no more frames");
    pump_soon();
  }
  // Those to a peer that reads nothing would only pile up.
  const bool is_read = judged.pulse.silence() < Pulse::kProcessDead;
  if (judged.loss.is_lossy() && is_read) judged.link->send(wire::FrameType::kPing, {});
}

// The rail's rate is a guess where this link shows nothing of it; see RateTrial. A link that may be
// dead, or loses much, shows nothing either.
void Channel::try_rate(Rail rail, Nanos time) {
  Port& to = port(rail);
  RateTrial& trial = owner_.device(rail)->trial();
  const uint64_t id = to.link->id();
  if (to.is_bursting && time - to.burst_at > RateTrial::kLongest) end_burst(rail);
  if (!scheduler_.is_guess(rail) || std::popcount(up()) < 2) return;
  const double rate = shown_rate(rail);
  if (rate > 0 && rate != to.guessed && are_rates_known()) {
    scheduler_.guess(rail, to.guessed = rate);
  }
  if (owner_.device(rail)->counters().rate > 0) return;
  if (to.pulse.is_suspected() || to.loss.is_lossy()) return;
  trial.hold(id, time);
  if (to.is_bursting || to.pulse.is_asked()) return;
  if (!trial.is_due(id, id ^ owner_.process().low, time)) return;
  to.burst_at = now();
  to.is_bursting = true;
  trial.sent(to.burst_at);
  scheduler_.disturb(rail, true);
  to.link->send_burst(RateTrial::kFrames);
  to.pulse.asked(to.burst_at);
}

void Channel::end_burst(Rail rail) {
  Port& ended = port(rail);
  ended.is_bursting = false;
  scheduler_.disturb(rail, false);
  RateTrial& trial = owner_.device(rail)->trial();
  if (!trial.is_under_way(ended.link->id())) return;  // another link's turn has come
  trial.arrived(now());
  if (!trial.is_over()) return;
  log().debug("bursts to {} on {} went at {:.1f} MB/s", description_, owner_.device(rail)->name(),
              trial.rate() / 1e6);
}

// By another link, or a trial; 0: nothing has shown it.
double Channel::shown_rate(Rail rail) const {
  Device& device = *owner_.device(rail);
  return device.counters().rate > 0 ? device.counters().rate : device.trial().rate();
}

// Beside a first guess what a trial has shown says nothing.
bool Channel::are_rates_known() const {
  bool are_known = true;
  for_each_rail(
      up(), [&](Rail rail) { are_known &= !scheduler_.is_guess(rail) || shown_rate(rail) > 0; });
  return are_known;
}

// Finds links that have fallen silent; see Pulse.
Channel::Watch Channel::watch_links(Nanos time) {
  Watch watch = Watch::kNothing;
  for (Rail rail = 0; rail < kMaxRails; ++rail) {
    Port& watched = port(rail);
    if (watched.link == nullptr) continue;
    scheduler_.set_trust(rail, watched.retry.trust(time));
    judge(rail, time);
    if (wanted()) try_rate(rail, time);
    // Not all that a link can lose is acknowledged at once, or at all (a grant): so one is asked
    // that has said nothing while somebody waits.
    if (wanted() && time - watched.pulse.last_heard() > kHousekeeping) ask(rail);
    const bool was_suspected = watched.pulse.is_suspected();
    const Pulse::State state = watched.pulse.look(
        watched.link->health(), scheduler_.waiting_since(rail), siblings_heard(rail), time);
    if (state == Pulse::State::kWell) {
      watched.attempt.reset();  // it need not be made anew
      if (watched.pulse.is_asked()) watch = std::max(watch, Watch::kAnswers);
      continue;
    }
    watch = Watch::kSuspicion;
    if (!was_suspected) {
      for (Rail other = 0; other < kMaxRails; ++other) ask(other);
      owner_.on_suspicion(rail);
    }
    if (state != Pulse::State::kDead) {
      // One frame that is lost is missed, and sent again, only when the peer's machine gets another
      // one; by itself that takes longer than a silent link is given.
      if (watched.pulse.silence() < Pulse::kProcessDead) {
        watched.link->send(wire::FrameType::kPing, {});
      }
      remake(rail, time);
      continue;
    }
    const bool is_by_size = watched.pulse.trouble() == Pulse::Trouble::kLargeFrames;
    link_down(rail,
              absl::DeadlineExceededError(is_by_size
                                              ? trouble_of(watched, false)
                                              : absl::StrCat("nothing was acknowledged for ",
                                                             watched.pulse.silence() / kMillisecond,
                                                             " ms while other rails progressed")),
              true);
  }
  return watch;
}

// Without another link nothing tells a dead one from a peer that stands still, but a new one does:
// it is up only if the peer's process answers. A path that loses large frames, or has forgotten the
// connection, is known by that.
void Channel::remake(Rail rail, Nanos time) {
  Port& still = port(rail);
  const Pulse::Trouble trouble = still.pulse.trouble();
  if (trouble != Pulse::Trouble::kLargeFrames && trouble != Pulse::Trouble::kMachine) return;
  if (still.pulse.silence() < Pulse::kRemade || still.attempt != nullptr) return;
  if (wanted() && is_last_resort() && still.retry.due(time, true)) connect(rail);
}

// ---- Large frames that do not get through ------------------------------------------------------

// The size of packets, in bytes, that do not get through to the peer by the link though small ones
// do; 0: that is not what is wrong.
uint32_t Channel::lost_packet(const Port& port) {
  const bool is_by_size = port.link != nullptr && port.pulse.is_owed() &&
                          port.pulse.trouble() == Pulse::Trouble::kLargeFrames;
  return is_by_size ? largest_packet(*port.link) : 0;
}

// The log tells so once, for the links of such a rail come up and die again.
void Channel::note_large_frames(Rail rail, uint32_t lost_packet, Outage::Way way) {
  const bool is_news = port(rail).outage.lose_large(way, lost_packet, now()) && is_missed();
  log().log(is_news ? spdlog::level::warn : spdlog::level::info,
            "{} do not get through {} {} on {}, though small ones do: check the MTU of all hosts"
            " and switches on the path",
            large_frames(lost_packet), std::string(name_of(way)), description_,
            owner_.device(rail)->name());
}

// A segment of so many bytes has gone that way: it was acknowledged, or has landed.
void Channel::note_passed(Rail rail, uint32_t bytes, Outage::Way way) {
  if (!port(rail).outage.pass(way, bytes)) return;
  log().warn("large frames get through {} {} on {} again", std::string(name_of(way)), description_,
             owner_.device(rail)->name());
}

// The peer gave a link up. This end may have seen its end before, but not the reason.
void Channel::on_link_down(const Link& by, const wire::LinkDown& down) {
  if (down.link == 0) return;  // the id of no link, as last_link is where none has died
  for_each_rail(owner_.rails(), [&](Rail rail) {
    Port& to = port(rail);
    const bool is_up = to.link != nullptr && to.link.get() != &by && to.link->id() == down.link;
    if (!is_up && to.last_link != down.link) return;
    std::string why = "the peer gave the link up";
    if (down.lost_packet != 0) {
      note_large_frames(rail, down.lost_packet, Outage::Way::kFrom);
      absl::StrAppend(&why, ": ", large_are_lost(down.lost_packet));
    }
    if (is_up) {
      link_down(rail, absl::UnavailableError(why), false);
    } else if (down.lost_packet != 0) {
      to.last_error = absl::UnavailableError(why);
      owner_.device(rail)->counters().last_failure = absl::StrCat(description_, ": ", why);
    }
  });
}

// ---- Rails that are missed ---------------------------------------------------------------------

// A missing link is a fault if this process speaks to the peer, neither of them is about to end,
// and a context is well.
bool Channel::is_missed() const {
  return !addresses_.empty() && !failed() && !peer_left_ && !is_leaving_ &&
         contexts_.has_open([this](const UniqueId& id) { return !is_broken(id.low); });
}

Nanos Channel::missing_since(Rail rail) const {
  const Port& missing = port(rail);
  const bool counts = missing.has_been_up || missing.outage.is_long(now());
  return counts && is_missed() ? missing.outage.since() : 0;
}

std::string Channel::why_missing(Rail rail) const {
  return absl::StrCat(description_, ": ", state_of(rail));
}

RailMask Channel::long_missing() const {
  RailMask missing = 0;
  const Nanos time = now();
  for_each_rail(owner_.rails(), [&](Rail rail) {
    if (port(rail).outage.is_long(time)) missing |= rail_bit(rail);
  });
  return missing;
}

void Channel::tell_of_outages(Nanos time) {
  if (!is_missed()) return;
  for_each_rail(owner_.rails() & ~up(), [&](Rail rail) {
    Outage& outage = port(rail).outage;
    if (!outage.is_long(time) || !outage.tell(time)) return;
    log().warn("there has been no link to {} on {} for {} s: {}", description_,
               owner_.device(rail)->name(), (time - outage.since()) / kSecond, state_of(rail));
  });
}

// ---- The end -----------------------------------------------------------------------------------

// What was sent for a context that broke is nobody's need, but why it broke is: the sockets of a
// process that has not read all that came lose what they have yet to send.
bool Channel::drained() const {
  const bool reachable = up() != 0 || contexts_.next(0) != nullptr;
  if (failed() || peer_left_ || !reachable) return true;
  if (is_bursting()) return false;  // a goodbye would wait behind it
  if (is_connecting()) return false;
  if (outbox_.pending_of([this](uint64_t context) { return !is_broken(context); })) return false;
  return up() == 0 || owner_.aborts().empty() ||
         std::any_of(ports_.begin(), ports_.end(), [](const Port& port) {
           return port.link != nullptr && port.link->has_arrived();
         });
}

// The peer may have accepted an attempt that this end knows nothing of yet. If the attempt were
// given up, the peer would see a connection that ends without a goodbye.
bool Channel::is_connecting() const {
  const Nanos time = now();
  return std::any_of(ports_.begin(), ports_.end(), [time](const Port& each) {
    return each.attempt != nullptr && time - each.attempt_at < kConnectingTime;
  });
}

// Looks: when nobody waits, nothing may come by the link that would tell.
bool Channel::is_bursting() const {
  return std::any_of(ports_.begin(), ports_.end(), [](const Port& each) {
    return each.link != nullptr && each.is_bursting && !each.link->has_burst_arrived();
  });
}

// By every link: the peer may see the end of one before it reads what came by another.
void Channel::say_goodbye() {
  is_leaving_ = true;
  for (Port& open : ports_) {
    if (open.link != nullptr) open.link->send(wire::FrameType::kGoodbye, {});
  }
}

void Channel::stop(const absl::Status& why) noexcept {
  if (std::exchange(is_stopped_, true)) return;  // what it defers may throw in its turn
  failure_ = why;
  for (Port& open : ports_) {
    open.attempt.reset();
    if (open.link != nullptr) open.link->stop();
  }
  try {
    fail_soon();
  } catch (const std::bad_alloc&) {
    // Those who wait do so until their deadlines.
  }
}

void Channel::shut_down() {
  for (Port& open : ports_) {
    open.attempt.reset();
    if (open.link != nullptr) open.link->shut_down();
  }
}

}  // namespace nezha
