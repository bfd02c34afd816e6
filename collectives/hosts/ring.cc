// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/ring.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "collectives/signature.h"

namespace nezha {
namespace {

bool is_sum(const Leg& leg) {
  return leg.use == Leg::Use::kPartialSum || leg.use == Leg::Use::kFinalSum;
}

}  // namespace

Ring::Ring(const Group& group, const Slice& slice, TaskOwner& owner)
    : Task(owner),
      group_(group),
      slice_(slice),
      granule_(Partition(0, slice.operation.element_size, 1).granule()),
      reducer_(slice.operation.reducer(group.size)),
      course_(course_of(slice.operation, slice.bounds, group.rank, group.size)) {
  const int n = group_.size;
  const auto channel = [&](int rank) { return group_.channels[static_cast<size_t>(rank)]; };
  left_ = channel((group_.rank + n - 1) % n);
  right_ = channel((group_.rank + 1) % n);
  receive_offsets_.push_back(0);
  for (const Leg& leg : course_.legs) {
    receive_offsets_.push_back(receive_offsets_.back() + leg.range.length);
    if (leg.forwarded) {
      to_forward_ += leg.range.length;
    } else if (leg.use != Leg::Use::kTokens) {
      to_complete_ += leg.range.length;
    }
  }
  to_send_ = course_.begun.length + to_forward_ + course_.tokens;
}

void Ring::start(const EnginePlan& plan) {
  plan_ = plan;
  copy_own_block(slice_.operation, group_);
  if (has_neither()) return finish(State::kDone);  // other slices cover the whole vector
  // The outgoing message is opened first: post() may deliver data that have already arrived, and
  // these are forwarded at once.
  if (to_send_ > 0) {
    const RailMask rails = slice_.rails & right_->up();
    if (right_->rate(rails) >= Course::kFast) {
      course_.widen(std::popcount(rails));
      kept_ = slice_.rails & right_->preferred();
    }
    outgoing_ = right_->open(message_info(group_, slice_, plan, to_send_),
                             {slice_.rails, granule_, 2}, this);
    // Ranks that disagree on the root may all wait for their left neighbours.
    if (course_.begun.length == 0) right_->announce(*outgoing_);
  }
  if (const uint64_t total = receive_offsets_.back(); total > 0) {
    Inbox::Ticket* ticket = left_->post(message_info(group_, slice_, plan, total), this);
    if (state_ != State::kRunning) return;
    if (!all_received()) incoming_ = ticket;  // else the ticket is gone already
  }
  posted_ = true;
  if (!failure_.ok()) return failed(failure_);
  begin();
  check_complete();
}

Ring::Place Ring::locate(uint64_t offset) const {
  const auto next = std::upper_bound(receive_offsets_.begin(), receive_offsets_.end(), offset);
  const auto leg = static_cast<size_t>(next - receive_offsets_.begin()) - 1;
  return {course_.legs[leg], offset - receive_offsets_[leg]};
}

std::byte* Ring::place(uint64_t offset, size_t length) {
  const auto [leg, in_leg] = locate(offset);
  if (in_leg + length > leg.range.length) return nullptr;
  if (leg.use == Leg::Use::kTokens) return length <= tokens_.size() ? tokens_.data() : nullptr;
  if (!slice_.operation.is_whole(in_leg, length)) return nullptr;
  if (leg.use == Leg::Use::kResult) return slice_.operation.output_at(leg.range.offset + in_leg);
  Buffer& buffer = scratch_[offset];
  if (buffer && buffer.size() != length) return nullptr;  // a link that died was reading into it
  buffer = group_.pool->take(length);
  return buffer.data();
}

void Ring::landed(uint64_t offset, size_t length, Rail rail) {
  if (!count_landed(length)) return;
  const Place place = locate(offset);
  std::byte* scratch = nullptr;
  if (is_sum(place.leg)) scratch = scratch_.find(offset)->second.data();
  const absl::Status status = take_in(place, length, scratch);
  if (!status.ok()) {
    failure_ = status;
    if (posted_) failed(failure_);  // else start() fails the task, once it has the ticket
    return;
  }
  pass_on(offset, length, rail);
}

// The user's function is called under the lock, so it handles one segment at a time.
bool Ring::digests(uint64_t offset, size_t) const {
  return is_sum(locate(offset).leg) && !reducer_.is_custom();
}

void Ring::digest(uint64_t offset, size_t length, std::byte* memory) {
  take_in(locate(offset), length, memory).IgnoreError();  // only the user's function may fail
}

void Ring::digested(uint64_t offset, size_t length, Rail rail) {
  if (count_landed(length)) pass_on(offset, length, rail);
}

// Returns false if the operation has failed.
bool Ring::count_landed(size_t length) {
  received_ += length;
  arrivals_.add(length, now());
  if (all_received()) incoming_ = nullptr;  // the inbox's ticket is gone
  return failure_.ok();                     // this is inside of post()
}

// Adds this rank's part to what has landed, if the leg is a sum. It changes only the segment's own
// memory.
absl::Status Ring::take_in(const Place& place, size_t length, std::byte* scratch) const {
  if (scratch == nullptr) return absl::OkStatus();
  const Operation& op = slice_.operation;
  const std::byte* own = op.input_at(place.leg.range.offset + place.in_leg);
  const size_t elements = length / op.element_size;
  if (place.leg.use == Leg::Use::kPartialSum) {
    return reducer_.combine(scratch, scratch, own, elements);
  }
  std::byte* output = op.output_at(place.leg.range.offset + place.in_leg);
  return reducer_.finish(output, scratch, scratch, own, elements);
}

// Sends what has been taken in to the right neighbour, on the rail that it came by.
void Ring::pass_on(uint64_t offset, size_t length, Rail rail) {
  const auto [leg, in_leg] = locate(offset);
  if (leg.use == Leg::Use::kTokens) {
    tokens_received_ += length;
    came_around_ = std::min(course_.begun.length, tokens_received_ * Course::kTokenBytes);
  } else {
    const bool is_partial = leg.use == Leg::Use::kPartialSum;
    const std::byte* data = is_partial ? scratch_.find(offset)->second.data()
                                       : slice_.operation.output_at(leg.range.offset + in_leg);
    if (leg.use == Leg::Use::kFinalSum) scratch_.erase(offset);
    if (leg.came_around) came_around_ += length;
    if (leg.forwarded) {
      right_->push(*outgoing_, forward_offset(offset), data, length, rail);
    } else {
      completed_ += length;
    }
  }
  send_tokens();
  if (leg.came_around && keeps_to(rail)) {
    replace(length, rail);
  } else {
    begin();
  }
  check_complete();
}

void Ring::send_tokens() {
  const bool is_complete = completed_ == to_complete_;
  const size_t due = is_complete ? course_.tokens : completed_ / Course::kTokenBytes;
  while (tokens_sent_ < std::min(due, course_.tokens)) {
    const size_t count = std::min(due - tokens_sent_, tokens_.size());
    const uint64_t offset = course_.begun.length + to_forward_ + tokens_sent_;
    right_->push(*outgoing_, offset, tokens_.data(), count);
    tokens_sent_ += count;
  }
}

void Ring::begin() { push_own(course_.due(begun_, came_around_, granule_), kAnyRail); }

// Returns false for the rest of the operation once other rails are in use than at its start. A rail
// that has come back would be given nothing otherwise, because nothing comes around by it.
bool Ring::keeps_to(Rail rail) {
  if ((slice_.rails & right_->preferred()) != kept_) kept_ = 0;
  return (kept_ & rail_bit(rail)) != 0;
}

// Begins as much as has come around. The longest segments are replaced by two, which stay in the
// caches; a device that wants longer ones keeps them (DeviceTraits::least_segment).
void Ring::replace(uint64_t length, Rail rail) {
  const uint64_t left = course_.begun.length - begun_;
  if (left <= course_.window - (begun_ - came_around_)) return push_own(left, kAnyRail);
  const uint64_t most = length <= kLongSegment ? kLongSegment / 2 / granule_ * granule_ : length;
  for (uint64_t done = 0; done < length; done += std::min(most, length - done)) {
    push_own(std::min(most, length - done), rail);
  }
}

void Ring::push_own(uint64_t length, Rail rail) {
  if (length == 0) return;
  const uint64_t offset = begun_;
  begun_ += length;
  right_->push(*outgoing_, offset, slice_.operation.input_at(course_.begun.offset + offset), length,
               rail);
}

void Ring::released(uint64_t offset, size_t) {
  const size_t begun = course_.begun.length;
  const bool is_forwarded = offset >= begun && offset < begun + to_forward_;
  if (is_forwarded) scratch_.erase(offset - begun);
}

void Ring::check_complete() {
  const bool all_sent = begun_ == course_.begun.length && tokens_sent_ == course_.tokens;
  if (state_ != State::kRunning || settling_ || !all_received() || !all_sent) return;
  settling_ = true;
  if (outgoing_ == nullptr) return finish(State::kDone);
  right_->settle(*outgoing_);
}

void Ring::settled() {
  outgoing_ = nullptr;
  finish(State::kDone);
}

void Ring::failed(const absl::Status& why) {
  detach();
  finish(State::kFailed, why);
}

void Ring::mismatched(const wire::MessageInfo& theirs) {
  incoming_ = nullptr;  // the inbox's ticket is gone
  const int left = (group_.rank + group_.size - 1) % group_.size;
  failed(mismatch_error(group_.rank, left,
                        message_info(group_, slice_, plan_, receive_offsets_.back()), theirs,
                        slice_.operation));
}

void Ring::detach() {
  if (incoming_ != nullptr) left_->cancel(std::exchange(incoming_, nullptr));
  if (outgoing_ != nullptr) right_->abandon(*std::exchange(outgoing_, nullptr));
}

std::string Ring::describe() const {
  const int n = group_.size;
  return absl::StrCat("ring: received ", received_, " of ", receive_offsets_.back(),
                      " bytes from rank ", (group_.rank + n - 1) % n, " (", left_->describe(),
                      "); ", settling_ ? "waiting for rank " : "sending to rank ",
                      (group_.rank + 1) % n, settling_ ? " to acknowledge" : "", " (",
                      right_->describe(), ")");
}

}  // namespace nezha
