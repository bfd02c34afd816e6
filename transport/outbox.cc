// SPDX-License-Identifier: Apache-2.0
#include "transport/outbox.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/cleanup/cleanup.h"
#include "common/out_of_memory.h"
#include "transport/trace.h"

namespace nezha {

Outbox::~Outbox() = default;

// ---- What the user does ------------------------------------------------------------------------

OutMessage* Outbox::open(const wire::MessageInfo& info, const Route& route, Sender* sender) {
  std::unique_ptr<OutMessage> made = spare_messages_.take();
  OutMessage* message = made.get();
  const uint64_t number = next_number_++;
  message->header_ = {.info = info, .number = number};
  message->route_ = route;
  message->sender_ = sender;
  message->pushed_ = message->unacked_ = 0;
  message->unwritten_ = 0;
  message->granted_ = message->announced_ = message->scheduled_ = message->settling_ = false;
  message->has_asked_ = message->is_in_doubt_ = false;
  const auto entry = messages_.try_emplace(number).first;
  const absl::Cleanup forget = [&] {
    if (entry->second == nullptr) messages_.erase(entry);
  };
  const auto [last, is_first] = last_.try_emplace(Key{info.context, info.tag}, number);
  if (!is_first) {
    message->header_.previous = static_cast<uint32_t>(
        std::min<uint64_t>(number - last->second, std::numeric_limits<uint32_t>::max()));
    last->second = number;
  }
  entry->second = std::move(made);
  ++open_;
  return message;
}

void Outbox::push(OutMessage& message, uint64_t offset, const std::byte* data, size_t length,
                  Rail rail) {
  const Route& route = message.route_;
  message.pushed_ += length;
  uint64_t left = length;
  // Without memory for a copy, the message has only what was added before.
  const absl::Cleanup count_made = [&] { message.pushed_ -= left; };
  const auto add = [&](uint64_t at, size_t bytes, Rail by) {
    Buffer copy;
    if (route.is_copied) copy = pool_.take(bytes);
    OutSegment* segment = make_segment(message, offset + at, data + at, bytes, by);
    left -= bytes;
    if (copy) retain(*segment, std::move(copy));
    if (!message.blocked_.empty() || !(message.granted_ || charge(bytes))) {
      if (message.blocked_.empty()) blocked_.push_back(message.number());
      message.blocked_.push_back(segment);
      announce(message);
      return;
    }
    if (!message.granted_) segment->flags |= wire::kFlagCharged;
    schedule(*segment, route.is_urgent);
  };
  if (rail == kAnyRail && route.turn) {
    rail = scheduler_.whole(message.header_.info.total, *route.turn, route.rails);
  }
  if (rail != kAnyRail) {
    add(0, length, rail);
    return;
  }
  for (const auto& cut :
       scheduler_.cut(length, route.granule, route.segments_per_rail, route.rails)) {
    // No rates are known while no link is up: segments are no larger than the wire allows.
    const uint64_t most = cut.rail == kAnyRail ? kMaxBlindSegment : cut.length;
    for (uint64_t done = 0; done < cut.length;) {
      const size_t bytes = std::min<uint64_t>(cut.length - done, most);
      add(cut.offset + done, bytes, cut.rail);
      done += bytes;
    }
  }
}

void Outbox::settle(OutMessage& message) {
  message.settling_ = true;
  const uint64_t number = message.number();
  if (message.header_.info.total == 0) announce(message);
  if (!try_settle(message)) settling_.push_back(number);
}

void Outbox::abandon(OutMessage& message) {
  if (message.sender_ == nullptr) return;
  message.sender_ = nullptr;
  --open_;
  bool all = message.pushed_ == message.header_.info.total && message.scheduled_ &&
             message.blocked_.empty();
  if (!message.blocked_.empty()) std::erase(blocked_, message.number());
  for (OutSegment* segment : message.blocked_) drop(segment);
  message.blocked_.clear();
  for (size_t i = message.live_.size(); i > 0; --i) {
    OutSegment* segment = message.live_[i - 1];
    if (!segment->queued || segment->header.attempt > 0) {
      // A link that has begun to write a segment must go on with the same bytes, from memory that
      // stays. A segment that a dead link may have delivered must be sent again, or the two ends'
      // counts differ.
      if (segment->length == 0 || segment->retained) continue;
      retain(*segment, pool_.take(segment->length));
      if (!segment->queued && !segment->written) scheduler_.withdraw(*segment);
      continue;
    }
    scheduler_.remove(*segment);
    all = false;
    drop(segment);
  }
  // The receiver is told in any case: other messages of the tag come after this one, and this one
  // may differ from what the receiver waits for.
  if (!all) end(message);
  trace_step("settled {} {}", fmt::ptr(this), message.number());
  finish_if_acked(message);
  unblock_all();  // others get the credit of dropped segments
}

void Outbox::fail(const absl::Status& why) {
  std::vector<uint64_t> open;
  for (const auto& [number, message] : messages_) {
    if (message->sender_ != nullptr) open.push_back(number);
  }
  for (const uint64_t number : open) {
    // A sender that fails may abandon this message and others of its operation.
    auto entry = messages_.find(number);
    if (entry == messages_.end() || entry->second->sender_ == nullptr) continue;
    // The peer has all of it, and may have left for that reason: there is nothing to fail.
    if (entry->second->complete()) continue;
    entry->second->sender_->failed(why);
    entry = messages_.find(number);
    if (entry != messages_.end()) abandon(*entry->second);
  }
}

// ---- What the links report ---------------------------------------------------------------------

void Outbox::on_written(OutSegment& segment) {
  if (segment.written) return;
  segment.written = true;
  OutMessage& message = *segment.message;
  --message.unwritten_;
  if (message.settling_) try_settle(message);
}

void Outbox::on_acked(OutSegment& segment) {
  OutMessage& message = *segment.message;
  if (!segment.written) {
    segment.written = true;
    --message.unwritten_;
  }
  message.live_.back()->index_in_message = segment.index_in_message;
  std::swap(message.live_[segment.index_in_message], message.live_.back());
  message.live_.pop_back();
  const uint64_t offset = segment.header.offset;
  const size_t length = segment.length;
  const bool was_senders = !segment.retained && length > 0;
  if (!was_senders) retained_ -= length;
  if (was_senders) message.unacked_ -= length;
  recycle(&segment);
  Sender* sender = message.sender_;
  if (sender != nullptr) ask_again_if_in_doubt(message);
  finish_if_acked(message);
  if (was_senders && sender != nullptr) sender->released(offset, length);
  // Any message may have waited for this: it may settle now that fewer bytes are to be retained.
  for (size_t i = 0; i < settling_.size();) {
    const auto entry = messages_.find(settling_[i]);
    if (entry != messages_.end() && !try_settle(*entry->second)) {
      ++i;
    } else {
      settling_.erase(settling_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
}

void Outbox::on_grant(uint64_t number) {
  const auto entry = messages_.find(number);
  if (entry == messages_.end()) return;
  OutMessage& message = *entry->second;
  trace_step("granted {} {}", fmt::ptr(this), number);
  message.granted_ = true;
  if (!message.blocked_.empty()) {
    std::erase(blocked_, number);
    unblock(message);
  }
  if (message.settling_ && try_settle(message)) std::erase(settling_, number);
}

void Outbox::on_credit(uint64_t credit) {
  if (credit <= credit_) return;
  credit_ = credit;
  unblock_all();
}

size_t Outbox::resend(std::deque<OutSegment*>& orphans) {
  size_t resent = 0;
  // Each goes to the front, from the last to the first, so that they keep their order.
  std::reverse(orphans.begin(), orphans.end());
  for (OutSegment* segment : orphans) {
    OutSegment& orphan = *segment;
    if (orphan.written) {
      orphan.written = false;
      ++orphan.message->unwritten_;
      ++resent;
    }
    orphan.rail = kAnyRail;
    if (!orphan.queued) ++orphan.header.attempt;
    orphan.flags &= static_cast<uint8_t>(~wire::kFlagAckNow);
    if (orphan.message->is_unasked()) orphan.flags |= wire::kFlagWantGrant;
    schedule(orphan, true);
  }
  ask_again();
  return resent;
}

// ---- Segments ----------------------------------------------------------------------------------

OutSegment* Outbox::make_segment(OutMessage& message, uint64_t offset, const std::byte* data,
                                 size_t length, Rail rail) {
  if (spare_segments_.empty()) {
    segments_.push_back(std::make_unique<OutSegment>());
    spare_segments_.push_back(segments_.back().get());
  }
  OutSegment* segment = spare_segments_.back();
  spare_segments_.pop_back();
  segment->header = message.header_;
  segment->header.offset = offset;
  segment->data = data;
  segment->length = static_cast<uint32_t>(length);
  // Only one segment asks, since the receiver answers each that does.
  const bool asks = message.is_unasked() && !std::exchange(message.has_asked_, true);
  segment->flags = asks ? wire::kFlagWantGrant : uint8_t{0};
  segment->queued = false;
  segment->is_end = message.pushed_ == message.header_.info.total;
  segment->written = false;
  segment->rail = rail;
  segment->message = &message;
  segment->index_in_message = message.live_.size();
  message.live_.push_back(segment);
  message.unacked_ += length;
  ++message.unwritten_;
  return segment;
}

void Outbox::schedule(OutSegment& segment, bool at_front) {
  segment.message->scheduled_ = true;
  scheduler_.enqueue(segment, segment.message->route_.rails, at_front);
}

void Outbox::announce(OutMessage& message) {
  if (message.announced_) return;
  message.announced_ = true;
  OutSegment* segment = make_segment(message, 0, nullptr, 0, kAnyRail);
  const bool is_to_be_granted = message.header_.info.total > 0 || message.is_unasked();
  if (is_to_be_granted) segment->flags |= wire::kFlagWantGrant;
  schedule(*segment, true);
}

// Asks again for grants that may have been lost.
void Outbox::ask_again() {
  for (const auto& [number, message] : messages_) {
    if (message->sender_ == nullptr || !message->scheduled_ || !message->is_unasked()) continue;
    message->is_in_doubt_ = true;
    ask_again_if_in_doubt(*message);
  }
}

// Asks once the peer has everything. Until then the peer remembers what it has granted, and grants
// it again by itself.
void Outbox::ask_again_if_in_doubt(OutMessage& message) {
  if (!message.live_.empty() || !message.is_unasked()) return;
  if (!std::exchange(message.is_in_doubt_, false)) return;
  message.announced_ = false;
  announce(message);
}

// Tells the receiver how much of the message comes in all. This may overtake the segments that it
// counts.
void Outbox::end(OutMessage& message) {
  OutSegment* segment = make_segment(message, message.pushed_, nullptr, 0, kAnyRail);
  segment->flags |= wire::kFlagAbandoned;
  schedule(*segment);
}

bool Outbox::charge(uint64_t length) {
  if (charged_ + wire::charge(length) > credit_) return false;
  charged_ += wire::charge(length);
  return true;
}

void Outbox::unblock(OutMessage& message) {
  while (!message.blocked_.empty()) {
    OutSegment& segment = *message.blocked_.front();
    if (!message.granted_) {
      if (!charge(segment.length)) return;
      segment.flags |= wire::kFlagCharged;
    }
    message.blocked_.pop_front();
    schedule(segment, message.route_.is_urgent);
  }
}

void Outbox::unblock_all() {
  while (!blocked_.empty()) {
    OutMessage& message = *messages_.at(blocked_.front());
    unblock(message);
    if (!message.blocked_.empty()) return;
    blocked_.pop_front();
  }
}

// Forgets a segment that was never given to a link.
void Outbox::drop(OutSegment* segment) {
  OutMessage& message = *segment->message;
  message.pushed_ -= segment->length;
  if ((segment->flags & wire::kFlagCharged) != 0) charged_ -= wire::charge(segment->length);
  OutSegment* last = message.live_.back();
  last->index_in_message = segment->index_in_message;
  message.live_[segment->index_in_message] = last;
  message.live_.pop_back();
  if (segment->retained) {
    retained_ -= segment->length;
  } else {
    message.unacked_ -= segment->length;
  }
  if (!segment->written) --message.unwritten_;
  recycle(segment);
}

void Outbox::retain(OutSegment& segment, Buffer copy) {
  segment.retained = std::move(copy);
  std::memcpy(segment.retained.data(), segment.data, segment.length);
  segment.data = segment.retained.data();
  trace_step("copied {} {} {} {}", fmt::ptr(this), segment.header.number, segment.header.offset,
             segment.length);
  retained_ += segment.length;
  segment.message->unacked_ -= segment.length;
}

// Returns false if the message has to wait.
bool Outbox::try_settle(OutMessage& message) {
  if (message.sender_ == nullptr) return true;
  const bool is_handed_over = message.unwritten_ == 0 && message.blocked_.empty();
  if (!is_handed_over && !message.route_.is_copied) return false;
  if (message.is_unasked()) return false;
  if (message.unacked_ > 0 && retained_ + message.unacked_ > kMaxRetained) return false;
  Sender* sender = message.sender_;
  for (OutSegment* segment : message.live_) {
    if (segment->length == 0 || segment->retained) continue;
    try {
      retain(*segment, pool_.take(segment->length));
    } catch (const OutOfMemory&) {
      return false;  // the peer's acknowledgements will release it
    }
    sender->released(segment->header.offset, segment->length);
  }
  trace_step("settled {} {}", fmt::ptr(this), message.number());
  message.sender_ = nullptr;
  --open_;
  finish_if_acked(message);
  sender->settled();
  return true;
}

void Outbox::finish_if_acked(OutMessage& message) {
  if (message.sender_ != nullptr || !message.live_.empty()) return;
  const uint64_t number = message.number();
  const auto last = last_.find(Key{message.header_.info.context, message.header_.info.tag});
  if (last != last_.end() && last->second == number) last_.erase(last);
  const auto entry = messages_.find(number);
  spare_messages_.put_back(std::move(entry->second));
  messages_.erase(entry);
}

void Outbox::recycle(OutSegment* segment) {
  segment->retained.reset();
  segment->message = nullptr;
  spare_segments_.push_back(segment);
}

}  // namespace nezha
