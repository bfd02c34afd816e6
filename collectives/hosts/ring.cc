#include "collectives/hosts/ring.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collectives/signature.h"

namespace nezha {

Ring::Ring(const Group& group, const Slice& slice, TaskOwner& owner)
    : Task(owner),
      group_(group),
      slice_(slice),
      partition_(slice.operation.elements, slice.operation.element_size, group.size),
      reducer_(slice.operation.reducer(group.size)) {
  const int n = group_.size;
  const auto channel = [&](int rank) { return group_.channels[static_cast<size_t>(rank)]; };
  left_ = channel((group_.rank + n - 1) % n);
  right_ = channel((group_.rank + 1) % n);
  receive_offsets_.push_back(0);
  send_offsets_.push_back(0);
  for (int step = 0; step < steps(); ++step) {
    receive_offsets_.push_back(receive_offsets_.back() + chunk_received(step).length);
    // What is sent at a step is what was received at the one before, and first this rank's own.
    send_offsets_.push_back(send_offsets_.back() + chunk_received(step - 1).length);
  }
}

Range Ring::chunk_received(int step) const {
  const int n = group_.size;
  return partition_.chunk((group_.rank - step - 1 + 2 * n) % n, slice_.bounds);
}

void Ring::start(const EnginePlan& plan) {
  plan_ = plan;
  if (receive_offsets_.back() == 0) return finish(State::kDone);  // other slices have all of it
  // The outgoing message first: what has come already is forwarded while it is posted for.
  outgoing_ = right_->open(message_info(group_, slice_, plan, send_offsets_.back()),
                           {slice_.rails, partition_.granule(), 2}, this);
  const uint64_t total = receive_offsets_.back();
  Inbox::Ticket* ticket = left_->post(message_info(group_, slice_, plan, total), this);
  if (state_ != State::kRunning) return;
  if (!all_received()) incoming_ = ticket;  // else it is gone again
  posted_ = true;
  if (!failure_.ok()) return failed(failure_);
  inject();
  check_complete();
}

Ring::Place Ring::locate(uint64_t offset) const {
  const auto next = std::upper_bound(receive_offsets_.begin(), receive_offsets_.end(), offset);
  const auto step = static_cast<int>(next - receive_offsets_.begin()) - 1;
  return {step, offset - receive_offsets_[static_cast<size_t>(step)]};
}

size_t Ring::offset_in_vector(const Place& at) const {
  return chunk_received(at.step).offset + at.in_chunk;
}

uint64_t Ring::forward_offset(const Place& at) const {
  return send_offsets_[static_cast<size_t>(at.step) + 1] + at.in_chunk;
}

std::byte* Ring::place(uint64_t offset, size_t length) {
  const Place at = locate(offset);
  const Range chunk = chunk_received(at.step);
  const bool is_inside = at.in_chunk + length <= chunk.length;
  if (!is_inside || !slice_.operation.is_whole(at.in_chunk, length)) return nullptr;
  if (!is_reduced(at.step)) return slice_.operation.output + offset_in_vector(at);
  Buffer& buffer = scratch_[forward_offset(at)];
  buffer = group_.pool->take(length);
  return buffer.data();
}

void Ring::landed(uint64_t offset, size_t length, Rail rail) {
  received_ += length;
  if (all_received()) incoming_ = nullptr;  // the inbox's ticket is gone
  if (!failure_.ok()) return;               // this is inside of post()
  const Place at = locate(offset);
  const std::byte* data = slice_.operation.output + offset_in_vector(at);
  if (is_reduced(at.step)) {
    const absl::StatusOr<const std::byte*> reduced = reduce(at, length);
    if (!reduced.ok()) {
      failure_ = reduced.status();
      if (posted_) failed(failure_);  // else start() does, once it has the ticket
      return;
    }
    data = *reduced;
  }
  if (at.step == group_.size - 1) returned_ += length;
  if (at.step + 1 < steps()) right_->push(*outgoing_, forward_offset(at), data, length, rail);
  inject();
  check_complete();
}

// Adds this rank's part to what has landed; where it is now.
absl::StatusOr<const std::byte*> Ring::reduce(const Place& at, size_t length) {
  const Operation& op = slice_.operation;
  const auto partial = scratch_.find(forward_offset(at));
  std::byte* scratch = partial->second.data();
  const std::byte* own = op.input + offset_in_vector(at);
  const size_t elements = length / op.element_size;
  if (is_partial_sum(at.step)) {
    const absl::Status status = reducer_.combine(scratch, scratch, own, elements);
    if (!status.ok()) return status;
    return scratch;
  }
  std::byte* output = op.output + offset_in_vector(at);
  const absl::Status status = reducer_.finish(output, scratch, scratch, own, elements);
  scratch_.erase(partial);
  if (!status.ok()) return status;
  return output;
}

void Ring::inject() {
  const Range own = partition_.chunk(group_.rank, slice_.bounds);
  const uint64_t room = kWindow - (injected_ - returned_);
  const uint64_t left = own.length - injected_;
  // Not in crumbs: a piece is to be worth spreading.
  if (left == 0 || (room < kWindow / 4 && room < left)) return;
  const size_t granule = partition_.granule();
  const size_t length = std::min(left, room / granule * granule);
  const uint64_t offset = injected_;
  injected_ += length;
  right_->push(*outgoing_, offset, slice_.operation.input + own.offset + offset, length);
}

void Ring::released(uint64_t offset, size_t) { scratch_.erase(offset); }

void Ring::check_complete() {
  const bool all_sent = injected_ == partition_.chunk(group_.rank, slice_.bounds).length;
  if (state_ != State::kRunning || settling_ || !all_received() || !all_sent) return;
  settling_ = true;
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
  failed(
      mismatch_error(left, message_info(group_, slice_, plan_, receive_offsets_.back()), theirs));
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
