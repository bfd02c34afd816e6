// SPDX-License-Identifier: Apache-2.0
#include "transport/inbox.h"

#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/out_of_memory.h"
#include "transport/trace.h"

namespace nezha {
namespace {

// Messages that a peer may have begun here and that nobody has asked for. A correct peer has a few
// for each concurrent operation.
constexpr size_t kMaxOpenMessages = 1 << 16;

}  // namespace

// ---- What the user does ------------------------------------------------------------------------

Inbox::Ticket* Inbox::post(const wire::MessageInfo& info, Receiver* receiver, bool asks) {
  const Key key{info.context, info.tag};
  auto& posted = queues_[key].posted;
  std::unique_ptr<Ticket> made = spare_tickets_.take();
  Ticket* ticket = made.get();
  posted.push_back(ticket);
  absl::Cleanup forget = [&] { posted.pop_back(); };
  ticket->info_ = info;
  ticket->receiver_ = receiver;
  ticket->message_ = nullptr;
  ticket->is_awaited_ = true;
  ticket->asks_ = asks;
  ticket->index_ = tickets_.size();
  tickets_.push_back(std::move(made));
  std::move(forget).Cancel();
  ++awaited_;
  const size_t index = ticket->index_;
  try {
    match(key);
  } catch (...) {
    // The receiver never gets the ticket.
    const bool is_there =
        index < tickets_.size() && tickets_[index].get() == ticket && ticket->receiver_ == receiver;
    if (is_there) cancel(ticket);
    throw;
  }
  return ticket;
}

void Inbox::cancel(Ticket* ticket) {
  const absl::Cleanup retire_it = [&] { retire(ticket); };
  if (ticket->message_ != nullptr) {
    Message& message = *ticket->message_;
    discard(message);
    trace_step("cancelled {} {}", fmt::ptr(this), message.number);
    finish_if_complete(message.number);
  } else {
    const auto entry = queues_.find(Key{ticket->info_.context, ticket->info_.tag});
    Queue& queue = entry->second;
    queue.posted.erase(std::find(queue.posted.begin(), queue.posted.end(), ticket));
    if (queue.posted.empty() && queue.arrived.empty()) queues_.erase(entry);
  }
}

void Inbox::set_awaited(Ticket* ticket, bool is_awaited) {
  if (ticket->is_awaited_) --awaited_;
  ticket->is_awaited_ = is_awaited;
  if (is_awaited) ++awaited_;
}

void Inbox::close_context(uint64_t context) {
  if (closed_contexts_.insert(context).second) closed_order_.push_back(context);
  if (closed_order_.size() > kMaxClosed) {
    closed_contexts_.erase(closed_order_.front());
    closed_order_.pop_front();
  }
  absl::erase_if(queues_, [&](auto& entry) {
    if (entry.first.first != context) return false;
    for (Message* message : entry.second.arrived) {
      discard(*message);
      finish_if_complete(message->number);
    }
    entry.second.arrived.clear();
    return entry.second.posted.empty();
  });
}

void Inbox::fail(const absl::Status& why) {
  while (!tickets_.empty()) fail(tickets_.back().get(), why);
}

void Inbox::fail_context(uint64_t context, const absl::Status& why) {
  const auto next = [&] {
    return std::find_if(tickets_.begin(), tickets_.end(),
                        [&](const auto& ticket) { return ticket->info_.context == context; });
  };
  for (auto ticket = next(); ticket != tickets_.end(); ticket = next()) fail(ticket->get(), why);
}

// A receiver that fails may cancel this ticket and others of its operation.
void Inbox::fail(Ticket* ticket, const absl::Status& why) {
  ticket->receiver_->failed(why);
  const bool is_there =
      ticket->index_ < tickets_.size() && tickets_[ticket->index_].get() == ticket;
  if (is_there) cancel(ticket);
}

// ---- What the links do -------------------------------------------------------------------------

absl::StatusOr<std::byte*> Inbox::arrive(Rail rail, const wire::FrameHeader& frame,
                                         const wire::DataHeader& data) {
  Incoming& incoming = incoming_.emplace_back();
  absl::Cleanup undo = [this] { incoming_.pop_back(); };
  incoming.rail = rail;
  incoming.length = frame.length;
  incoming.is_ack_due = (frame.flags & wire::kFlagAckNow) != 0;
  absl::StatusOr<std::byte*> place = begin(incoming, frame, data);
  if (place.ok()) std::move(undo).Cancel();
  return place;
}

// Returns where the segment goes. As long as `incoming` has no message, it is dropped.
absl::StatusOr<std::byte*> Inbox::begin(Incoming& incoming, const wire::FrameHeader& frame,
                                        const wire::DataHeader& data) {
  if (completed_.contains(data.number)) {  // came twice
    // The grant may have been lost with a link, and the sender may wait for nothing else.
    if ((frame.flags & wire::kFlagWantGrant) != 0) owner_.send_grant(data.number, incoming.rail);
    return nullptr;
  }
  absl::StatusOr<Message*> found = find_or_add(data);
  if (!found.ok()) return found.status();
  Message& message = **found;
  const absl::StatusOr<bool> is_wanted = replaces_others(message, frame, data);
  if (!is_wanted.ok()) return is_wanted.status();
  if (!*is_wanted) return nullptr;
  if (absl::Status status = check(message, frame, data); !status.ok()) return status;
  const uint64_t end = data.offset + frame.length;
  if (message.got.contains(data.offset, end) && frame.length > 0) return nullptr;  // came twice
  message.wants_grant |= (frame.flags & wire::kFlagWantGrant) != 0;
  incoming.message = &message;
  incoming.offset = data.offset;
  incoming.attempt = data.attempt;
  incoming.charged = (frame.flags & wire::kFlagCharged) != 0;
  incoming.abandons = frame.length == 0 && (frame.flags & wire::kFlagAbandoned) != 0;
  if (frame.length == 0) return nullptr;
  return place(message, incoming);
}

// Another link may be in the middle of the same segment. The sender has given up the link of the
// lower attempt: it may break off, and the rest of that attempt must not be written any more.
// Returns false if the segment is not wanted, because it is the lower attempt or the other one is
// complete.
absl::StatusOr<bool> Inbox::replaces_others(const Message& message, const wire::FrameHeader& frame,
                                            const wire::DataHeader& data) {
  for (Incoming& reading : incoming_) {
    if (reading.message != &message || frame.length == 0 || reading.length == 0 ||
        reading.offset >= data.offset + frame.length ||
        data.offset >= reading.offset + reading.length) {
      continue;
    }
    if (reading.offset != data.offset || reading.length != frame.length) {
      return absl::InvalidArgumentError(
          absl::StrCat("the peer sent two segments of message ", data.number, " that overlap"));
    }
    if (reading.attempt >= data.attempt) return false;
    if (!drop(reading)) return false;  // the lower attempt is there already
    forget(reading);
  }
  return true;
}

absl::StatusOr<Inbox::Message*> Inbox::find_or_add(const wire::DataHeader& data) {
  auto [entry, is_new] = messages_.try_emplace(data.number);
  if (!is_new) return entry->second.get();
  if (messages_.size() > kMaxOpenMessages || completed_.intervals() > kMaxOpenMessages) {
    messages_.erase(entry);
    return absl::ResourceExhaustedError(absl::StrCat("the peer sent more than ", kMaxOpenMessages,
                                                     " messages that nobody has asked for"));
  }
  // If there is no memory for all of the message, none of it remains.
  absl::Cleanup forget = [&] { messages_.erase(data.number); };
  entry->second = spare_messages_.take();
  Message* message = entry->second.get();
  message->info = data.info;
  message->number = data.number;
  message->previous = data.previous;
  message->coming = data.info.total;
  if (closed_contexts_.contains(data.info.context)) {
    message->discard = true;
    std::move(forget).Cancel();
    return message;
  }
  const Key key{data.info.context, data.info.tag};
  Queue& queue = queues_[key];
  message->came = now();
  auto& arrived = queue.arrived;
  const auto place =
      std::upper_bound(arrived.begin(), arrived.end(), message,
                       [](const Message* a, const Message* b) { return a->number < b->number; });
  arrived.insert(place, message);
  std::move(forget).Cancel();
  match(key);
  return message;
}

absl::Status Inbox::check(const Message& message, const wire::FrameHeader& frame,
                          const wire::DataHeader& data) const {
  if (message.info != data.info || message.previous != data.previous) {
    return absl::InvalidArgumentError(absl::StrCat("the peer sent two segments of message ",
                                                   data.number, " that contradict each other"));
  }
  const uint64_t end = data.offset + frame.length;
  if (message.got.intersects(data.offset, end) && !message.got.contains(data.offset, end)) {
    return absl::InvalidArgumentError(absl::StrCat("the peer sent a segment [", data.offset, ", ",
                                                   end, ") of message ", data.number,
                                                   " that overlaps others"));
  }
  const bool unasked = message.ticket == nullptr && !message.discard &&
                       !message.got.contains(data.offset, end);  // else it came twice
  if (unasked && frame.length > 0 &&
      ((frame.flags & wire::kFlagCharged) == 0 ||
       held_bytes_ + wire::charge(frame.length) > kCredit)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the peer sent a segment of ", frame.length,
                     " bytes that nobody has asked for and that its credit does not cover"));
  }
  return absl::OkStatus();
}

// Makes the link write no more of the segment. Returns false if the segment is complete and
// digested.
bool Inbox::drop(const Incoming& incoming) {
  const auto is_older = [&](const Incoming& each) {
    return &each < &incoming && each.rail == incoming.rail;
  };
  const auto nth = std::count_if(incoming_.begin(), incoming_.end(), is_older);
  return owner_.drop_incoming(incoming.rail, static_cast<size_t>(nth));
}

// The segment goes nowhere from here on, and will come again.
void Inbox::forget(Incoming& incoming) {
  Message* message = std::exchange(incoming.message, nullptr);
  if (message == nullptr) return;
  if (incoming.held) held_bytes_ -= wire::charge(incoming.length);
  incoming.held.reset();
  if (incoming.memory != nullptr && message->ticket != nullptr) {
    message->placed.push_back({incoming.offset, incoming.length, incoming.memory});
  }
}

absl::StatusOr<std::byte*> Inbox::place(Message& message, Incoming& incoming) {
  if (message.discard) return nullptr;
  if (message.ticket == nullptr) return hold(incoming);
  const auto again = std::find_if(
      message.placed.begin(), message.placed.end(),
      [&](const Placed& p) { return p.offset == incoming.offset && p.length == incoming.length; });
  if (again != message.placed.end()) {
    incoming.memory = again->memory;
    message.placed.erase(again);
  } else {
    try {
      incoming.memory = message.ticket->receiver_->place(incoming.offset, incoming.length);
    } catch (const OutOfMemory&) {
      // Its operation fails, and the link goes on: the segment goes nowhere.
      fail(message.ticket, caught_status());
      return nullptr;
    }
  }
  if (incoming.memory == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the peer sent a segment [", incoming.offset,
                                                   ", +", incoming.length, ") of message ",
                                                   message.number, " that no correct peer sends"));
  }
  trace_step("placed {} {} {} {}", fmt::ptr(this), message.number, incoming.offset,
             incoming.length);
  return incoming.memory;
}

// Nobody has asked for the segment yet.
std::byte* Inbox::hold(Incoming& incoming) {
  incoming.held = pool_.take(incoming.length);
  held_bytes_ += wire::charge(incoming.length);
  return incoming.held.data();
}

Inbox::Landing Inbox::next_to_land(Rail rail) const {
  const auto next = std::find_if(incoming_.begin(), incoming_.end(),
                                 [rail](const Incoming& each) { return each.rail == rail; });
  return {next->length, next->is_ack_due};
}

Digest Inbox::digest_of(Rail rail) const {
  const auto last = std::find_if(incoming_.rbegin(), incoming_.rend(),
                                 [rail](const Incoming& each) { return each.rail == rail; });
  if (last->message == nullptr || last->memory == nullptr) return {};
  Receiver* receiver = last->message->ticket->receiver_;
  if (!receiver->digests(last->offset, last->length)) return {};
  return {receiver, last->offset, last->length, last->memory};
}

void Inbox::landed(Rail rail, bool is_digested) {
  const auto next = std::find_if(incoming_.begin(), incoming_.end(),
                                 [rail](const Incoming& each) { return each.rail == rail; });
  Incoming incoming = std::move(*next);
  incoming_.erase(next);
  if (incoming.message == nullptr) return;  // came twice
  Message& message = *incoming.message;
  const uint64_t number = message.number;
  message.got.add(incoming.offset, incoming.offset + incoming.length);
  message.announced_empty |= message.info.total == 0 && !incoming.abandons;
  if (incoming.abandons) {
    message.abandoned = true;
    message.coming = incoming.offset;
  }
  if (incoming.held) {
    message.held.push_back(
        {incoming.offset, incoming.length, incoming.charged, rail, std::move(incoming.held)});
    if (message.discard) discard(message);
    if (message.ticket != nullptr) deliver_held(message);
    if (messages_.contains(number)) finish_if_complete(number);
    return;
  }
  message.received += incoming.length;
  if (message.ticket != nullptr)
    trace_step("received {} {} {} {}", fmt::ptr(this), number, incoming.offset, incoming.length);
  consume(incoming.charged, incoming.length);
  const Ticket* ticket = message.ticket;
  Receiver* receiver = ticket == nullptr ? nullptr : ticket->receiver_;
  const bool is_news = incoming.length > 0 || (message.info.total == 0 && !incoming.abandons);
  if (receiver != nullptr || message.discard) grant_if_wanted(message);
  finish_if_complete(number);  // first: the receiver, when told, may do anything
  if (receiver == nullptr || !is_news) return;
  if (is_digested) {
    receiver->digested(incoming.offset, incoming.length, rail);
  } else {
    receiver->landed(incoming.offset, incoming.length, rail);
  }
}

void Inbox::link_gone(Rail rail) {
  const auto is_its = [rail](const Incoming& each) { return each.rail == rail; };
  for (Incoming& incoming : incoming_) {
    if (is_its(incoming)) forget(incoming);
  }
  incoming_.erase(std::remove_if(incoming_.begin(), incoming_.end(), is_its), incoming_.end());
}

// ---- Matching ----------------------------------------------------------------------------------

bool Inbox::is_next(const Message& message) const {
  return message.previous == 0 || known(message.number - message.previous);
}

std::optional<Nanos> Inbox::waiting_since(uint64_t context, uint64_t tag) const {
  const auto entry = queues_.find({context, tag});
  if (entry == queues_.end() || entry->second.arrived.empty()) return std::nullopt;
  const Message& message = *entry->second.arrived.front();
  return is_next(message) ? std::optional(message.came) : std::nullopt;
}

void Inbox::match(const Key& key) {
  auto entry = queues_.find(key);
  while (entry != queues_.end()) {
    Queue& queue = entry->second;
    if (queue.arrived.empty() && queue.posted.empty()) {
      queues_.erase(entry);
      return;
    }
    if (queue.arrived.empty() || queue.posted.empty()) return;
    Message* message = queue.arrived.front();
    if (!is_next(*message)) return;
    Ticket* ticket = queue.posted.front();
    queue.arrived.erase(queue.arrived.begin());
    queue.posted.erase(queue.posted.begin());
    bind(*message, ticket);
    entry = queues_.find(key);  // bind calls the receiver
  }
}

void Inbox::bind(Message& message, Ticket* ticket) {
  const bool is_wanted =
      ticket->asks_ ? ticket->receiver_->accepts(message.info) : ticket->info_ == message.info;
  if (!is_wanted) {
    Receiver* receiver = ticket->receiver_;
    const wire::MessageInfo theirs = message.info;
    discard(message);
    finish_if_complete(message.number);
    retire(ticket);
    receiver->mismatched(theirs);
    return;
  }
  message.ticket = ticket;
  ticket->message_ = &message;
  grant_if_wanted(message);
  deliver_held(message);
}

void Inbox::deliver_held(Message& message) {
  const uint64_t number = message.number;
  Receiver* receiver = message.ticket->receiver_;
  if (message.announced_empty) {
    finish_if_complete(number);
    receiver->landed(0, 0, kAnyRail);
    return;
  }
  RecycledVector<Held> held = std::move(message.held);
  message.held.clear();
  for (const Held& segment : held) {
    held_bytes_ -= wire::charge(segment.length);
    consume(segment.charged, segment.length);
  }
  const Ticket* ticket = message.ticket;
  uint64_t undelivered = 0;
  for (const Held& segment : held) undelivered += segment.length;
  for (const Held& segment : held) {
    std::byte* to = receiver->place(segment.offset, segment.length);
    if (to == nullptr) {  // the link is not known here: the operation fails
      fail(message.ticket, absl::InvalidArgumentError(
                               absl::StrCat("the peer sent a segment [", segment.offset, ", +",
                                            segment.length, ") that no correct peer sends")));
      break;
    }
    std::memcpy(to, segment.bytes.data(), segment.length);
    trace_step("received {} {} {} {}", fmt::ptr(this), number, segment.offset, segment.length);
    undelivered -= segment.length;
    message.received += segment.length;
    if (finish_if_complete(number)) {
      receiver->landed(segment.offset, segment.length, segment.rail);
      return;
    }
    receiver->landed(segment.offset, segment.length, segment.rail);
    if (message.ticket != ticket) break;  // the receiver has cancelled
  }
  if (message.ticket == ticket || !messages_.contains(number)) return;
  message.received += undelivered;  // dropped
  finish_if_complete(number);
}

void Inbox::grant_if_wanted(Message& message) {
  if (!message.wants_grant) return;
  message.wants_grant = false;
  message.granted = true;
  owner_.send_grant(message.number, kAnyRail);
}

void Inbox::grant_again() {
  for (const auto& [number, message] : messages_) {
    if (message->granted) owner_.send_grant(number, kAnyRail);
  }
}

bool Inbox::finish_if_complete(uint64_t number) {
  const auto entry = messages_.find(number);
  Message& message = *entry->second;
  const bool all =
      message.received == message.info.total && (message.info.total > 0 || message.announced_empty);
  // The receiver must first let go of a message that was abandoned: its operation ends by other
  // means. And all charged bytes must have come, since bytes that come later are not counted.
  const bool rest = message.abandoned && message.discard && message.received >= message.coming;
  if ((!all && !rest) || (message.ticket == nullptr && !message.discard)) return false;
  if (message.ticket != nullptr) {
    trace_step("completed {} {} {}", fmt::ptr(this), number, message.info.total);
    retire(message.ticket);
  }
  completed_.add(number, number + 1);
  // Links that are still reading duplicates of its parts drop them.
  for (Incoming& incoming : incoming_) {
    if (incoming.message != &message) continue;
    if (incoming.held) held_bytes_ -= wire::charge(incoming.length);
    incoming.message = nullptr;
  }
  std::unique_ptr<Message> done = std::move(entry->second);
  messages_.erase(entry);
  retire(*done);
  spare_messages_.put_back(std::move(done));
  return true;
}

void Inbox::discard(Message& message) {
  message.discard = true;
  message.ticket = nullptr;
  message.placed.clear();
  for (const Held& segment : message.held) {
    held_bytes_ -= wire::charge(segment.length);
    consume(segment.charged, segment.length);
    message.received += segment.length;
  }
  message.held.clear();
  for (Incoming& incoming : incoming_) {
    if (incoming.message != &message || incoming.memory == nullptr) continue;
    drop(incoming);
    incoming.memory = nullptr;
  }
  grant_if_wanted(
      message);  // what nobody wants is read and dropped, so that the sender is rid of it
}

void Inbox::retire(Ticket* ticket) {
  set_awaited(ticket, false);
  const size_t index = ticket->index_;
  spare_tickets_.put_back(std::move(tickets_[index]));
  if (index + 1 < tickets_.size()) {
    tickets_[index] = std::move(tickets_.back());
    tickets_[index]->index_ = index;
  }
  tickets_.pop_back();
}

void Inbox::retire(Message& message) {
  message.received = 0;
  message.coming = 0;
  message.wants_grant = false;
  message.granted = false;
  message.announced_empty = false;
  message.abandoned = false;
  message.discard = false;
  message.ticket = nullptr;
  message.got.clear();
  message.held.clear();
  message.placed.clear();
}

}  // namespace nezha
