// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/link.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace nezha::rdma {
namespace {

// The low half of a work request's id: the slot of a receive, or one of these.
constexpr uint32_t kSendId = 1u << 30;
constexpr uint32_t kReadId = 2u << 30;

absl::Status error_of(const ibv_wc& completion, const Adapter& adapter) {
  const std::string& device = adapter.choice().device;
  std::string why = absl::StrCat(device, ": ", ibv_wc_status_str(completion.status));
  if (completion.status == IBV_WC_RETRY_EXC_ERR)
    why = absl::StrCat(device, ": the peer's device does not answer");
  // When the device goes, work that has not ended otherwise is flushed.
  if (completion.status == IBV_WC_WR_FLUSH_ERR) {
    if (absl::Status state = adapter.port_state(); !state.ok()) why = std::string(state.message());
  }
  return absl::AbortedError(why);
}

}  // namespace

// ---- Beginning and end -------------------------------------------------------------------------

RdmaLink::RdmaLink(Progress& progress, std::shared_ptr<Adapter> adapter, RailCounters& counters)
    : progress_(progress),
      adapter_(std::move(adapter)),
      counters_(counters),
      parting_(progress,
               [this] { end(absl::UnavailableError("the peer closed the connection")); }) {}

absl::StatusOr<std::unique_ptr<RdmaLink>> RdmaLink::create(Progress& progress,
                                                           std::shared_ptr<Adapter> adapter,
                                                           RailCounters& counters) {
  std::unique_ptr<RdmaLink> link(new RdmaLink(progress, std::move(adapter), counters));
  if (absl::Status status = link->open(); !status.ok()) return status;
  return link;
}

absl::Status RdmaLink::open() {
  auto slots = Slots::create(adapter_);
  if (!slots.ok()) return slots.status();
  slots_ = *std::move(slots);
  const QueuePair::Depth depth{.sends = Slots::kSends + adapter_->reads_asked(),
                               .receives = Slots::kReceives};
  auto pair = QueuePair::create(adapter_, depth, this);
  if (!pair.ok()) return pair.status();
  pair_ = *std::move(pair);
  for (uint32_t slot = 0; slot < Slots::kReceives; ++slot) {
    absl::Status status = pair_->receive(slot, slots_->part(slots_->received(slot), Slots::kSize));
    if (!status.ok()) return status;
  }
  if (ConnectionManager* connections = adapter_->connections(); connections != nullptr) {
    token_ = connections->add({.number = pair_->number(),
                               .reads_asked = adapter_->reads_asked(),
                               .reads_answered = adapter_->reads_answered()});
  }
  return absl::OkStatus();
}

Greeting RdmaLink::greeting() const {
  Greeting greeting = pair_->greeting();
  greeting.slots = Slots::kReceives;
  greeting.slot_size = Slots::kSize;
  greeting.token = token_;
  if (token_ != 0) greeting.port = adapter_->connections()->port();
  return greeting;
}

absl::Status RdmaLink::connect(const Greeting& peers) {
  if (peers.slots < 4 || peers.slot_size < Slots::kSize) {
    return absl::FailedPreconditionError(
        absl::StrCat("the peer takes ", peers.slots, " messages of ", peers.slot_size,
                     " bytes, but this process sends longer ones"));
  }
  if (absl::Status status = pair_->connect(peers); !status.ok()) return status;
  credits_.emplace(Slots::kReceives, peers.slots);
  landings_.emplace(*adapter_, *pair_, *slots_, kReadId);
  return absl::OkStatus();
}

void RdmaLink::adopt(net::Socket socket, bool is_accepting) {
  socket_ = std::move(socket);
  is_accepting_ = is_accepting;
}

RdmaLink::~RdmaLink() { stop(); }

void RdmaLink::stop() noexcept {
  has_failed_ = true;
  if (is_registered_) progress_.remove(socket_.fd());
  is_registered_ = false;
  socket_ = net::Socket();  // the peer sees the end
  parting_.cancel();
  if (pair_ != nullptr) pair_->destroy();
  if (token_ != 0) adapter_->connections()->remove(std::exchange(token_, 0));
  release_all();
}

// Releases the memory that this link holds. The queue pair has ended.
void RdmaLink::release_all() noexcept {
  for (Begun& begun : begun_) release(begun);
  if (landings_) landings_->release_all();
}

void RdmaLink::end(absl::Status why) {
  if (has_failed_) return;
  stop();
  progress_.defer([this, alive = std::weak_ptr<bool>(alive_), why = std::move(why)] {
    if (!alive.expired()) owner_->on_failed(*this, why);
  });
}

void RdmaLink::start(LinkOwner* owner, Rail rail, uint64_t id) {
  owner_ = owner;
  rail_ = rail;
  id_ = id;
  heard_at_ = now();
  absl::Status status = progress_.add(socket_.fd(), this, EPOLLIN);
  if (!status.ok()) return end(std::move(status));
  is_registered_ = true;
  if (token_ != 0) adapter_->connections()->set_end(token_, this);
  status = say_ready(socket_.fd());
  if (!status.ok()) return end(std::move(status));
  is_ready_ = has_spoken_ = !is_accepting_;
  // With iWARP the accepting end sends nothing before it has got a message by the connection.
  if (token_ != 0 && is_ready_) answer();
}

void RdmaLink::on_disconnected(const absl::Status& why) {
  // What the peer sent before it ended the connection counts, and has completed by now.
  const std::weak_ptr<bool> alive = alive_;
  const std::shared_ptr<Adapter> adapter = adapter_;
  adapter->poll_all();
  if (!alive.expired()) end(why);
}

void RdmaLink::on_events(uint32_t) {
  char byte = 0;
  const ssize_t got = ::recv(socket_.fd(), &byte, 1, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got == 1) {
    absl::Status status = check_ready(byte, !std::exchange(has_spoken_, true));
    if (!status.ok()) return end(std::move(status));
    is_ready_ = is_ready_ || token_ == 0;
    return pump();
  }
  const std::string why = got == 0 ? "the peer closed the connection" : strerror(errno);
  if (token_ == 0) return on_disconnected(absl::UnavailableError(why));
  // With iWARP, what was sent before may come later. The device says when the connection has ended.
  progress_.remove(socket_.fd());
  is_registered_ = false;
  parting_.start(now() + kParting);
}

void RdmaLink::shut_down() {
  if (has_failed_) return;
  flush_ack();  // the peer would otherwise take for lost what has arrived
  const std::weak_ptr<bool> alive = alive_;
  const Nanos deadline = is_ready_ ? adapter_->parting_deadline() : 0;
  while (!alive.expired() && !has_failed_ && !has_arrived() && now() < deadline) {
    if (!adapter_->poll()) sched_yield();
  }
  if (!alive.expired() && !has_failed_) ::shutdown(socket_.fd(), SHUT_WR);
}

void RdmaLink::on_completion(uint32_t id, const ibv_wc& completion) {
  if (has_failed_) return;
  // For an iWARP device, a flush means only that the peer's end of the connection has ended. If
  // there was no connection, the connection manager says why.
  if (token_ != 0 && completion.status == IBV_WC_WR_FLUSH_ERR) {
    if (!is_ready_) return;
    return end(absl::UnavailableError("the peer's device closed the connection"));
  }
  if (owner_ == nullptr) return give_up();  // a correct peer sends nothing before it is started
  if (completion.status != IBV_WC_SUCCESS) return end(error_of(completion, *adapter_));
  heard_at_ = now();
  if (id == kSendId) return on_sent();
  if (id == kReadId) return on_read();
  on_message(id, completion.byte_len);
}

Link::Health RdmaLink::health() const {
  Health health;
  health.delivered = bytes_confirmed_;
  health.moved = bodies_moved_;
  // When an iWARP device completes a message, only its own host is to send it.
  if (!messages_.empty() && token_ == 0) {
    health.unanswered = now() - std::max(messages_.front().sent_at, heard_at_);
  }
  health.confirmation_time = confirmation_time_;
  return health;
}

bool RdmaLink::has_arrived() const {
  return messages_.empty() && controls_.empty() && pending_.empty() && copying_ == nullptr;
}

// ---- Receiving ---------------------------------------------------------------------------------

void RdmaLink::on_message(uint32_t slot, size_t bytes) {
  is_ready_ = is_ready_ || token_ != 0;
  absl::Status status = take(slots_->received(slot), bytes);
  if (status.ok() && !has_failed_) {
    status = pair_->receive(slot, slots_->part(slots_->received(slot), Slots::kSize));
  }
  if (!status.ok()) return end(std::move(status));
  if (has_failed_) return;
  credits_->freed();
  land();
  pump();
}

absl::Status RdmaLink::take(const std::byte* message, size_t bytes) {
  if (bytes < kPrefixSize)
    return absl::InvalidArgumentError("the peer sent a message that is too short");
  const Prefix prefix = decode_prefix(message);
  if (!credits_->heard(prefix.freed)) {
    return absl::InvalidArgumentError("the peer reports that it took more messages than were sent");
  }
  if (prefix.content > Content::kMore) {
    return absl::InvalidArgumentError("the peer sent a message of an unknown kind");
  }
  if (prefix.content != Content::kMore) return take_frame(prefix.content, message, bytes);
  bodies_moved_ += bytes - kPrefixSize;
  counters_.bytes_received += bytes - kPrefixSize;
  return landings_->more(absl::MakeConstSpan(message + kPrefixSize, bytes - kPrefixSize));
}

absl::Status RdmaLink::take_frame(Content content, const std::byte* message, size_t bytes) {
  constexpr size_t kHead = kPrefixSize + wire::kFrameHeaderSize;
  if (bytes < kHead) return absl::InvalidArgumentError("the peer sent a message that is too short");
  const auto frame = wire::decode_frame(message + kPrefixSize);
  if (!frame.ok()) return frame.status();
  if (absl::Status status = take_acks(frame->acked); !status.ok()) return status;
  const auto rest = absl::MakeConstSpan(message + kHead, bytes - kHead);
  if (frame->type == wire::FrameType::kData) return take_segment(content, *frame, rest);
  if (rest.size() != frame->length || content != Content::kFrame) {
    return absl::InvalidArgumentError("the peer sent a control frame of a wrong length");
  }
  bodies_moved_ += rest.size();
  owner_->on_frame(*this, *frame, rest);
  return absl::OkStatus();
}

absl::Status RdmaLink::take_segment(Content content, const wire::FrameHeader& frame,
                                    absl::Span<const std::byte> rest) {
  const size_t tail = content == Content::kElsewhere ? kElsewhereSize : 0;
  if (rest.size() < wire::kDataHeaderSize + tail) {
    return absl::InvalidArgumentError("the peer sent a message that is too short");
  }
  const auto data = wire::decode_data(rest.data(), frame.length);
  if (!data.ok()) return data.status();
  if (landings_->size() == kMostLandings) {
    return absl::ResourceExhaustedError("the peer sends too many segments at once");
  }
  if (landings_->is_copying()) {
    return absl::InvalidArgumentError(
        "the peer began a segment before the one before it was complete");
  }
  rest.remove_prefix(wire::kDataHeaderSize);
  const bool is_sound = content == Content::kElsewhere
                            ? rest.size() == kElsewhereSize && frame.length > 0
                            : rest.size() <= frame.length;
  if (!is_sound) return absl::InvalidArgumentError("the peer sent a segment of a wrong length");
  owner_->on_frame(*this, frame, {});
  if (has_failed_) return absl::OkStatus();
  const auto place = owner_->on_segment(*this, frame, *data);
  if (!place.ok()) return place.status();
  if (has_failed_) return absl::OkStatus();
  if (content == Content::kElsewhere) {
    landings_->read(*place, frame.length, decode_elsewhere(rest.data()));
    return landings_->fetch();
  }
  bodies_moved_ += rest.size();
  counters_.bytes_received += rest.size();
  landings_->copy(*place, frame.length, rest);
  return absl::OkStatus();
}

absl::Status RdmaLink::take_acks(uint64_t acked) {
  const uint64_t sent = segments_begun_ - (copying_ != nullptr ? 1 : 0);
  if (acked > sent || acked < segments_acked_) {
    return absl::InvalidArgumentError(absl::StrCat("the peer acknowledges ", acked,
                                                   " segments; from ", segments_acked_, " to ",
                                                   sent, " are possible"));
  }
  while (segments_acked_ < acked && !has_failed_) {
    ++segments_acked_;
    Begun begun = begun_.front();
    begun_.pop_front();
    unacked_.pop_front();
    release(begun);
    if (begun.is_lent) {
      bytes_confirmed_ += begun.segment->length;
      bodies_moved_ += begun.segment->length;
      counters_.bytes_sent += begun.segment->length;
    }
    owner_->on_acked(*this, *begun.segment);
  }
  return absl::OkStatus();
}

void RdmaLink::on_read() {
  const uint32_t bytes = landings_->on_read();
  bodies_moved_ += bytes;
  counters_.bytes_received += bytes;
  if (absl::Status status = landings_->fetch(); !status.ok()) return end(std::move(status));
  land();
  pump();
}

// Whoever is told of a segment may do anything with the link except destroy it.
void RdmaLink::land() {
  if (is_landing_) return;
  is_landing_ = true;
  const absl::Cleanup over = [this] { is_landing_ = false; };
  while (!has_failed_ && landings_->take_complete()) {
    ++segments_received_;
    owner_->on_landed(*this, false);
  }
}

bool RdmaLink::drop_incoming(size_t nth) {
  if (has_failed_) return true;
  if (!landings_->drop(nth)) {
    end(absl::AbortedError("an operation was given up while its data was being read"));
    return true;
  }
  progress_.defer([this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) return;
    land();
    pump();
  });
  return true;
}

// ---- Sending -----------------------------------------------------------------------------------

void RdmaLink::submit(OutSegment& segment) {
  unacked_.push_back(&segment);
  pending_.push_back(&segment);
  bytes_submitted_ += segment.length;
  pump();
}

void RdmaLink::send(wire::FrameType type, absl::string_view body) {
  if (has_failed_) return;
  if (controls_.size() == kMostControls) {
    return end(absl::ResourceExhaustedError("the peer takes no control frames"));
  }
  controls_.push_back({type, std::string(body)});
  pump();
}

void RdmaLink::flush_ack() {
  ack_due_ = ack_due_ || segments_received_ != ack_sent_ || answer_due_;
  pump();
}

void RdmaLink::answer() {
  answer_due_ = true;
  flush_ack();
}

// A segment that has not begun is later taken from where its data is then.
void RdmaLink::withdraw(OutSegment& segment) {
  const bool is_lent = std::any_of(begun_.begin(), begun_.end(), [&](const Begun& begun) {
    return begun.segment == &segment && begun.is_lent;
  });
  if (is_lent) {
    end(absl::AbortedError("an operation was given up while the peer was reading its data"));
  }
}

void RdmaLink::pump() {
  if (is_pumping_ || !is_ready_) return;
  is_pumping_ = true;
  const absl::Cleanup over = [this] { is_pumping_ = false; };
  while (!has_failed_ && send_one()) {
  }
}

// Returns false if there is nothing to send, or no room for it.
bool RdmaLink::send_one() {
  if (messages_.size() == Slots::kSends) return false;
  const bool is_busy = !controls_.empty() || copying_ != nullptr || !pending_.empty();
  if (credits_->must_tell() || (ack_due_ && !is_busy && credits_->can_send())) {
    send_control({wire::FrameType::kAck, ""});
    return true;
  }
  if (!is_busy || !credits_->can_send()) return false;
  if (!controls_.empty()) {
    const Control control = std::move(controls_.front());
    controls_.pop_front();
    send_control(control);
  } else if (copying_ != nullptr) {
    send_more();
  } else {
    send_segment();
  }
  return true;
}

std::byte* RdmaLink::begin_message(Content content) {
  std::byte* out = slots_->to_send(messages_sent_);
  encode(Prefix{.freed = credits_->tell(), .content = content}, out);
  return out + kPrefixSize;
}

std::byte* RdmaLink::put_header(std::byte* out, wire::FrameType type, uint8_t flags,
                                size_t length) {
  wire::FrameHeader header;
  header.type = type;
  header.flags = flags;
  header.length = static_cast<uint32_t>(length);
  header.acked = ack_sent_ = segments_received_;
  header.credit = owner_->credit();
  // The peer takes neither of the two types for an answer.
  answer_due_ &= type == wire::FrameType::kPing || type == wire::FrameType::kFiller;
  ack_due_ = answer_due_;
  wire::encode(header, out);
  return out + wire::kFrameHeaderSize;
}

void RdmaLink::post(size_t bytes, uint32_t of_segments, uint32_t bodies) {
  const std::byte* message = slots_->to_send(messages_sent_);
  absl::Status status = pair_->send(kSendId, slots_->part(message, bytes));
  if (!status.ok()) return end(std::move(status));
  ++messages_sent_;
  credits_->sent();
  messages_.push_back({now(), of_segments, bodies});
}

void RdmaLink::send_control(const Control& control) {
  std::byte* out = begin_message(Content::kFrame);
  out = put_header(out, control.type, 0, control.body.size());
  std::memcpy(out, control.body.data(), control.body.size());
  const auto bodies = static_cast<uint32_t>(control.body.size());
  post(kPrefixSize + wire::kFrameHeaderSize + control.body.size(), 0, bodies);
}

void RdmaLink::send_segment() {
  OutSegment& segment = *pending_.front();
  pending_.pop_front();
  ++segments_begun_;
  Begun& begun = begun_.emplace_back(Begun{&segment, false, {}});
  const std::optional<Region> region = lend(begun);
  std::byte* out = begin_message(region ? Content::kElsewhere : Content::kFrame);
  out = put_header(out, wire::FrameType::kData, segment.flags, segment.length);
  wire::encode(segment.header, out);
  out += wire::kDataHeaderSize;
  if (region) {
    encode(Elsewhere{reinterpret_cast<uintptr_t>(segment.data), region->rkey}, out);
    return post(kSegmentHead + kElsewhereSize, 0, 0);
  }
  copied_ = std::min(segment.length, Slots::kPayload);
  if (copied_ > 0) std::memcpy(out, segment.data, copied_);
  post(kSegmentHead + copied_, copied_, copied_);
  copied(segment);
}

void RdmaLink::send_more() {
  OutSegment& segment = *copying_;
  const uint32_t bytes = std::min(segment.length - copied_, Slots::kPayload);
  std::byte* out = begin_message(Content::kMore);
  std::memcpy(out, segment.data + copied_, bytes);
  copied_ += bytes;
  post(kPrefixSize + bytes, bytes, bytes);
  copied(segment);
}

void RdmaLink::copied(OutSegment& segment) {
  copying_ = copied_ < segment.length ? &segment : nullptr;
  if (copying_ != nullptr || has_failed_) return;
  counters_.bytes_sent += segment.length;
  owner_->on_written(*this, segment);
}

// Returns the key by which the peer reads the segment; nullopt if the segment is short or its
// memory cannot be registered.
std::optional<Region> RdmaLink::lend(Begun& begun) {
  const OutSegment& segment = *begun.segment;
  if (segment.length <= Slots::kPayload) return std::nullopt;
  MemoryMap& memory = adapter_->memory();
  std::optional<Region> region = memory.find(segment.data, segment.length);
  if (!region) {
    memory.hold(segment.data, segment.length);
    begun.held = absl::MakeConstSpan(segment.data, segment.length);
    region = memory.find(segment.data, segment.length);
    if (!region) release(begun);
  }
  begun.is_lent = region.has_value();
  return region;
}

void RdmaLink::release(Begun& begun) noexcept {
  if (!begun.held.empty()) adapter_->memory().release(begun.held.data(), begun.held.size());
  begun.held = {};
}

void RdmaLink::on_sent() {
  const Message& message = messages_.front();
  bytes_confirmed_ += message.bytes;
  bodies_moved_ += message.bodies;
  confirmation_time_ = heard_at_ - message.sent_at;
  messages_.pop_front();
  pump();
}

}  // namespace nezha::rdma
