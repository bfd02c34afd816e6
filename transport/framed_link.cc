// SPDX-License-Identifier: Apache-2.0
#include "transport/framed_link.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/out_of_memory.h"

namespace nezha {
namespace {

// Returns kUnavailable if the peer's end closed the connection. Otherwise this kernel gave it up.
absl::Status connection_error(absl::string_view what, int error) {
  const std::string text = absl::StrCat(what, ": ", strerror(error));
  const bool is_by_peer = error == ECONNRESET || error == EPIPE;
  return is_by_peer ? absl::UnavailableError(text) : absl::AbortedError(text);
}

}  // namespace

FramedLink::FramedLink(Progress& progress, Progress::RailThread* thread,
                       std::unique_ptr<ByteStream> stream, RailCounters& counters)
    : progress_(progress), thread_(thread), stream_(std::move(stream)), counters_(counters) {}

FramedLink::~FramedLink() {
  fence();
  progress_.forget(thread_, this);
  if (owner_ != nullptr && !failed_) progress_.remove(stream_->fd());
  // Another link sends again what the kernel still holds, so this one must not deliver it late.
  if (!ended_) stream_->abandon();
}

void FramedLink::start(LinkOwner* owner, Rail rail, uint64_t id) {
  owner_ = owner;
  rail_ = rail;
  id_ = id;
  absl::Status status = progress_.add(stream_->fd(), this, EPOLLIN, thread_);
  if (!status.ok()) fail(std::move(status));
}

void FramedLink::on_events(uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    watch_for_room(false);
    write();
    flush_ack();
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !failed_) handle_input();
}

bool FramedLink::look() {
  if (failed_ || progress_.is_with_thread(stream_->fd())) return false;
  const uint64_t before = bytes_read_;
  return !handle_input() || failed_ || bytes_read_ != before;
}

bool FramedLink::fail(absl::Status why) {
  if (failed_) return false;
  failed_ = true;
  progress_.remove(stream_->fd());
  progress_.defer([this, alive = std::weak_ptr<bool>(alive_), why = std::move(why)] {
    if (!alive.expired()) owner_->on_failed(*this, why);
  });
  return false;
}

// ---- Reading -----------------------------------------------------------------------------------

// Handles what can be read. Returns false if the link is gone.
bool FramedLink::handle_input() {
  const std::weak_ptr<bool> alive = alive_;
  on_thread_ = progress_.is_this(thread_);
  try {
    read();
  } catch (...) {
    // The link cannot go on in the middle of a frame.
    if (!alive.expired()) {
      on_thread_ = false;
      fail(caught_status());
    }
    throw;
  }
  if (alive.expired()) return false;
  on_thread_ = false;
  if (!write_error_.ok()) fail(write_error_);
  return true;
}

void FramedLink::read() {
  read_this_turn_ = 0;
  // Turns to write come first, since others wait for what is sent on.
  while (!failed_ && read_this_turn_ < kReadBudget && read_once() && parse() &&
         !(on_thread_ && progress_.has_turns(thread_))) {
  }
}

// Makes one system call: reads the rest of the payload to its place, and what follows it to the
// staging area. Returns false if the socket is empty, or at its end.
bool FramedLink::read_once() {
  std::array<iovec, 2> parts;
  size_t count = 0;
  const size_t direct = payload_left_;
  if (direct > 0 && destination_ != nullptr) {
    parts[0] = {destination_, direct};
    count = 1;
  } else if (direct > 0) {
    if (bin_ == nullptr) bin_ = std::make_unique<std::byte[]>(kBin);
    parts[0] = {bin_.get(), std::min(direct, kBin)};
    count = 1;
  }
  const size_t room = staging_room();
  const bool reaches_end = direct == 0 || parts[0].iov_len == direct;
  if (reaches_end) parts[count++] = {staging_.data() + staged_end_, room};
  ssize_t got = 0;
  int error = 0;
  if (!receive({parts.data(), count}, got, error)) return false;
  if (got < 0) {
    if (error == EAGAIN || error == EINTR) return false;
    return fail(connection_error("reading", error));
  }
  if (got == 0) {
    // The kernel reports an error only once, and an end from then on.
    return fail(absl::IsAborted(write_error_)
                    ? write_error_
                    : absl::UnavailableError("the peer closed the connection"));
  }
  auto bytes = static_cast<size_t>(got);
  read_this_turn_ += bytes;
  bytes_read_ += bytes;
  const size_t capacity = (direct == 0 ? 0 : parts[0].iov_len) + (reaches_end ? room : 0);
  const bool drained = bytes < capacity;
  if (direct > 0) {
    const size_t payload = std::min(bytes, parts[0].iov_len);
    take_payload(payload);
    bytes -= payload;
  }
  staged_end_ += bytes;
  if (drained) {
    // The socket is empty: another call would only show that.
    parse();
    return false;
  }
  return true;
}

// A long segment is usually followed by another. So no more than a head is read ahead, and all of
// the next payload goes to its place at once.
size_t FramedLink::staging_room() const {
  const bool is_head = segment_length_ >= kLongCopy && staged_end_ < kMaxHead;
  return (is_head ? kMaxHead : kStaging) - staged_end_;
}

// Returns false if the link failed meanwhile, or is gone.
bool FramedLink::receive(absl::Span<const iovec> parts, ssize_t& got, int& error) {
  const auto call = [&] {
    got = stream_->receive(parts);
    error = errno;
  };
  if (!on_thread_) {
    call();
    return true;
  }
  return without_lock(receiving_, [&] {
    call();
    if (!digest_ || got < static_cast<ssize_t>(payload_left_)) return;
    digest_();
    is_digested_ = true;
  });
}

// Without the lock, copies and sums of several rails run side by side.
template <typename Call>
bool FramedLink::without_lock(std::atomic<bool>& flag, Call call) {
  const std::weak_ptr<bool> alive = alive_;
  flag.store(true, std::memory_order_relaxed);
  progress_.without_lock([&] {
    call();
    flag.store(false, std::memory_order_release);
  });
  return !alive.expired() && !failed_;
}

// Waits until the rail's thread is done with the memory that it reads or writes. The thread does
// not block meanwhile, and does not wait for the lock that the caller has.
void FramedLink::await(const std::atomic<bool>& flag) {
  while (flag.load(std::memory_order_acquire)) sched_yield();
}

void FramedLink::fence() const {
  await(receiving_);
  await(sending_);
}

bool FramedLink::drop_incoming(size_t /*nth*/) {  // there is one at most
  await(receiving_);
  if (is_digested_) return false;
  destination_ = nullptr;
  digest_ = {};
  return true;
}

bool FramedLink::halt() {
  await(receiving_);
  return is_digested_;
}

void FramedLink::take_payload(size_t bytes) {
  payload_left_ -= bytes;
  bodies_read_ += bytes;
  counters_.bytes_received += bytes;
  if (destination_ != nullptr) destination_ += bytes;
}

// Handles all that is complete in the staging area.
bool FramedLink::parse() {
  while (!failed_) {
    if (in_payload_) {
      const size_t bytes = std::min(payload_left_, staged_end_ - staged_begin_);
      if (destination_ != nullptr && bytes > 0) {
        std::memcpy(destination_, staging_.data() + staged_begin_, bytes);
      }
      take_payload(bytes);
      staged_begin_ += bytes;
      if (payload_left_ > 0) break;
      if (!end_of_payload()) return false;
    } else if (!parse_frame()) {
      break;
    }
  }
  // What is left is the beginning of a head. It moves to the front, so that all of the head fits.
  const size_t left = staged_end_ - staged_begin_;
  std::memmove(staging_.data(), staging_.data() + staged_begin_, left);
  staged_begin_ = 0;
  staged_end_ = left;
  return !failed_;
}

// Returns false if the frame's head, or a control frame's body, is not complete yet.
bool FramedLink::parse_frame() {
  const size_t staged = staged_end_ - staged_begin_;
  if (staged < wire::kFrameHeaderSize) return false;
  const std::byte* head = staging_.data() + staged_begin_;
  const absl::StatusOr<wire::FrameHeader> frame = wire::decode_frame(head);
  if (!frame.ok()) return fail(frame.status());
  const bool is_data = frame->type == wire::FrameType::kData;
  const size_t needed =
      wire::kFrameHeaderSize + (is_data ? wire::kDataHeaderSize : size_t{frame->length});
  if (staged < needed) return false;
  staged_begin_ += needed;
  if (absl::Status status = take_acks(frame->acked); !status.ok()) return fail(std::move(status));
  const std::byte* body = head + wire::kFrameHeaderSize;
  if (is_data) {
    owner_->on_frame(*this, *frame, {});
    return begin_segment(*frame, body);
  }
  bodies_read_ += frame->length;
  owner_->on_frame(*this, *frame, absl::MakeConstSpan(body, frame->length));
  return true;
}

bool FramedLink::begin_segment(const wire::FrameHeader& frame, const std::byte* header) {
  const absl::StatusOr<wire::DataHeader> data = wire::decode_data(header, frame.length);
  if (!data.ok()) return fail(data.status());
  const absl::StatusOr<std::byte*> place = owner_->on_segment(*this, frame, *data);
  if (!place.ok()) return fail(place.status());
  destination_ = *place;
  payload_left_ = segment_length_ = frame.length;
  in_payload_ = true;
  call_thread_for(*data, frame.length);
  if (on_thread_ && frame.length >= kLongCopy) digest_ = owner_->digest_of(*this);
  return true;
}

bool FramedLink::end_of_payload() {
  in_payload_ = false;
  destination_ = nullptr;
  digest_ = {};
  ++received_;
  owner_->on_landed(*this, std::exchange(is_digested_, false));
  return true;
}

absl::Status FramedLink::take_acks(uint64_t acked) {
  if (acked > written_) {
    return absl::InvalidArgumentError(absl::StrCat("the peer acknowledges ", acked,
                                                   " segments, but only ", written_, " were sent"));
  }
  while (acked_ < acked) {
    ++acked_;
    OutSegment* segment = unacked_.front();
    unacked_.pop_front();
    owner_->on_acked(*this, *segment);
  }
  return absl::OkStatus();
}

void FramedLink::call_thread_for(const wire::DataHeader& segment, size_t length) {
  if (length >= kLongCopy && segment.info.total >= kWorthThread) {
    progress_.call_thread(stream_->fd());
  }
}

// ---- Writing -----------------------------------------------------------------------------------

void FramedLink::submit(OutSegment& segment) {
  unacked_.push_back(&segment);
  pending_.push_back(&segment);
  waiting_ += segment.length;
  call_thread_for(segment.header, segment.length);
  write();
}

void FramedLink::send(wire::FrameType type, absl::string_view body) {
  if (failed_) return;
  // The frame goes behind one that is partly written and other control frames, ahead of segments.
  append_frame(type, 0, body.size(), std::string(body));
  write();
}

void FramedLink::flush_ack() {
  // Without room the acknowledgement waits, so that a peer that does not read cannot make the queue
  // grow.
  if (!watching_ && (received_ != ack_sent_ || answer_due_)) send(wire::FrameType::kAck, {});
}

void FramedLink::answer() {
  answer_due_ = true;
  flush_ack();
}

// Appends the whole frame, or nothing if there is no memory.
FramedLink::OutFrame& FramedLink::append_frame(wire::FrameType type, uint8_t flags, size_t length,
                                               std::string control) {
  OutFrame& frame = frames_.emplace_back();
  frame.control = std::move(control);
  wire::FrameHeader header;
  header.type = type;
  header.flags = flags;
  header.length = static_cast<uint32_t>(length);
  header.acked = ack_sent_ = received_;
  // The peer takes neither of the two types for an answer.
  answer_due_ &= type == wire::FrameType::kPing || type == wire::FrameType::kFiller;
  header.credit = owner_->credit();
  wire::encode(header, frame.head.data());
  frame.head_size = wire::kFrameHeaderSize;
  return frame;
}

void FramedLink::refill() {
  while (frames_.size() < kFramesAtOnce && !pending_.empty()) {
    OutSegment* segment = pending_.front();
    OutFrame& frame = append_frame(wire::FrameType::kData, segment->flags, segment->length);
    pending_.pop_front();
    wire::encode(segment->header, frame.head.data() + wire::kFrameHeaderSize);
    frame.head_size = kMaxHead;
    frame.segment = segment;
  }
  for (; frames_.size() < kFramesAtOnce && burst_left_ > 1; --burst_left_) {
    append_frame(wire::FrameType::kFiller, 0, wire::kMaxControlBody,
                 std::string(wire::kMaxControlBody, '\0'));
  }
  if (frames_.size() >= kFramesAtOnce || burst_left_ != 1) return;
  burst_left_ = 0;
  append_frame(wire::FrameType::kPing, 0, 0).ends_burst = true;
}

// The rail's thread sends without the lock, but not from here: the caller may be in the middle of
// anything. Other threads send short data at once.
bool FramedLink::is_left_to_thread() const {
  if (!progress_.is_with_thread(stream_->fd())) return false;
  return waiting_ >= kLongCopy || progress_.is_this(thread_);
}

void FramedLink::write() {
  if (!may_write()) return;
  if (is_left_to_thread()) return progress_.give_turn(thread_, this);
  writing_ = true;
  const absl::Cleanup end = [this] { writing_ = false; };
  while (write_once()) {
  }
}

void FramedLink::on_turn() {
  if (!may_write()) return;
  writing_ = in_turn_ = true;
  const absl::Cleanup end = [this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) writing_ = in_turn_ = false;
  };
  while (write_once()) {
  }
}

// Returns false if the link failed meanwhile, or is gone.
bool FramedLink::send(absl::Span<const iovec> parts, ssize_t& sent, int& error) {
  const auto call = [&] {
    sent = stream_->send(parts);
    error = errno;
  };
  if (in_turn_) return without_lock(sending_, call);
  call();
  return true;
}

// Makes one system call. Returns false if there is nothing to write, or no room for it, or the link
// is gone.
bool FramedLink::write_once() {
  if (failed_) return false;
  refill();
  if (frames_.empty()) return false;
  std::array<iovec, 2 * kFramesAtOnce> parts;
  size_t count = 0;
  const auto add = [&](const std::byte* data, size_t size, size_t& skip) {
    const size_t skipped = std::min(skip, size);
    skip -= skipped;
    if (size == skipped) return;
    parts[count++] = {const_cast<std::byte*>(data) + skipped, size - skipped};
  };
  for (size_t i = 0; i < std::min(frames_.size(), kFramesAtOnce); ++i) {
    const OutFrame& frame = frames_[i];
    size_t skip = frame.done;
    add(frame.head.data(), frame.head_size, skip);
    add(frame.body(), frame.body_size(), skip);
  }
  ssize_t sent = 0;
  int error = 0;
  if (!send({parts.data(), count}, sent, error)) return false;
  if (sent >= 0) {
    try {
      written(static_cast<size_t>(sent));
    } catch (...) {
      fail(caught_status());  // it cannot go on with a frame that is gone in part
      throw;
    }
    return true;
  }
  if (error == EINTR) return true;
  if (error == EAGAIN || error == ENOBUFS) {
    watch_for_room(true);
    return false;
  }
  // The peer may have sent something before it closed the connection: goodbye, or that it has
  // everything. That is read first, but not from inside of the caller that writes.
  write_error_ = connection_error("writing", error);
  progress_.defer([this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired() || on_thread_) return;  // then handle_input does this
    read();
    fail(write_error_);
  });
  return false;
}

void FramedLink::written(size_t bytes) {
  bytes_written_ += bytes;
  while (!frames_.empty()) {
    OutFrame& frame = frames_.front();
    const size_t now_done = std::min(bytes, frame.size() - frame.done);
    const size_t head_done = std::max(frame.done, frame.head_size);
    frame.done += now_done;
    bodies_written_ += std::max(frame.done, frame.head_size) - head_done;
    bytes -= now_done;
    if (frame.done < frame.size()) return;
    OutSegment* segment = frame.segment;
    if (frame.ends_burst) burst_end_ = bytes_written_ - bytes;
    frames_.pop_front();
    if (segment == nullptr) continue;
    counters_.bytes_sent += segment->length;
    waiting_ -= segment->length;
    ++written_;
    owner_->on_written(*this, *segment);
  }
}

void FramedLink::watch_for_room(bool on) {
  if (watching_ == on || failed_) return;
  watching_ = on;
  progress_.modify(stream_->fd(), on ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

uint64_t FramedLink::undelivered() const {
  uint64_t bytes = stream_->queued();
  for (const OutFrame& frame : frames_) bytes += frame.size() - frame.done;
  for (const OutSegment* segment : pending_) bytes += segment->length;
  return bytes;
}

Link::Health FramedLink::health() const {
  const uint64_t queued = stream_->queued();
  Health health = stream_->health();
  health.delivered = bytes_written_ - std::min(bytes_written_, queued);
  // All queued bytes count as bodies, though some may be headers: otherwise a ping that arrives
  // would count as progress.
  health.moved = bodies_read_ + bodies_written_ - std::min(bodies_written_, queued);
  return health;
}

void FramedLink::send_burst(int frames) {
  if (failed_) return;
  burst_left_ = frames;
  burst_end_ = std::numeric_limits<uint64_t>::max();
  write();
}

void FramedLink::stop() noexcept {
  if (!failed_) progress_.remove(stream_->fd());
  failed_ = true;
  fence();
  stream_->stop();
}

void FramedLink::shut_down() {
  if (failed_ || !write_error_.ok()) return;
  burst_left_ = 0;
  flush_ack();  // otherwise the peer would take for lost what has arrived
  write();
  ended_ = true;
  stream_->finish();
}

}  // namespace nezha
