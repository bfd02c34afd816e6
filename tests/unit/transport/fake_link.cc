// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/transport/fake_link.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "gtest/gtest.h"

namespace nezha::testing {
namespace {

// For connections whose ends read from each other's memory.
constexpr size_t kLongestCopied = 512;  // bytes of a segment
constexpr size_t kMostUnderWay = 5;     // segments

}  // namespace

// ---- FakeLink ----------------------------------------------------------------------------------

FakeLink::FakeLink(FakeNetwork& network, std::shared_ptr<FakeConnection> connection, int side)
    : network_(network), connection_(std::move(connection)), side_(side) {
  here().link = this;
  here().pending = false;
}

FakeLink::~FakeLink() {
  here().link = nullptr;
  // The peer notices later; what was in flight to it may or may not arrive.
  network_.break_connection(*connection_, network_.ends_vanish);
}

wire::FrameHeader FakeLink::make_header(wire::FrameType type, uint8_t flags, size_t length) {
  wire::FrameHeader header;
  header.type = type;
  header.flags = flags;
  header.length = static_cast<uint32_t>(length);
  header.acked = ack_sent_ = received_;
  header.credit = owner_->credit();
  return header;
}

void FakeLink::submit(OutSegment& segment) {
  here().submitted += segment.length;
  unacked_.push_back(&segment);
  pending_.push_back(&segment);
  // A real link may write inside submit(), and reports it.
  if (!failed_ && network_.one_in(2)) write(network_.some_bytes());
}

// A segment that was not begun is read from the copy from then on.
void FakeLink::withdraw(OutSegment& segment) {
  EXPECT_FALSE(segment.written);
  const bool is_begun = std::find(pending_.begin(), pending_.end(), &segment) == pending_.end();
  if (!connection_->reads_memory || !is_begun) return;
  is_fenced_ = true;
  fail(absl::AbortedError("memory that the peer may be reading was given back"));
}

// A read that has begun can only be stopped by ending the link.
bool FakeLink::drop_incoming(size_t nth) {
  EXPECT_LT(nth, incoming_.size());
  Incoming& dropped = incoming_[nth];
  dropped.destination = nullptr;
  const bool is_read = dropped.frame->source != nullptr && dropped.done > 0;
  if (is_read) fail(absl::AbortedError("memory that is being written to was given back"));
  return true;
}

void FakeLink::send(wire::FrameType type, absl::string_view body) {
  if (failed_) return;
  if (type == wire::FrameType::kPing) ++here().pings;
  OutFrame frame;
  frame.frame->header = make_header(type, 0, body.size());
  frame.frame->control = std::string(body);
  // Control frames go ahead of segments that have not begun.
  auto place = out_.end();
  while (place != out_.begin() && std::prev(place)->segment != nullptr &&
         !std::prev(place)->begun) {
    --place;
  }
  out_.insert(place, std::move(frame));
}

// Moves the next submitted segment to the frames to write.
void FakeLink::append_segment() {
  OutSegment* segment = pending_.front();
  pending_.pop_front();
  OutFrame frame;
  frame.segment = segment;
  frame.frame->header = make_header(wire::FrameType::kData, segment->flags, segment->length);
  frame.frame->data = segment->header;
  if (connection_->reads_memory && segment->length > kLongestCopied) {
    frame.frame->source = segment->data;
    frame.done = segment->length;
  }
  out_.push_back(std::move(frame));
}

void FakeLink::write(size_t bytes) {
  if (writing_ || failed_) return;
  writing_ = true;
  while (bytes > 0 && can_write()) {
    if (out_.empty()) append_segment();
    OutFrame& frame = out_.front();
    if (!frame.begun) {
      frame.begun = true;
      if (!there().mute) there().inbound.push_back(frame.frame);
      bytes -= std::min<size_t>(bytes, 24);
    }
    OutSegment* segment = frame.segment;
    const bool is_read = frame.frame->source != nullptr;
    if (segment != nullptr) {
      const size_t now_done = std::min<size_t>(bytes, segment->length - frame.done);
      if (!there().mute && now_done > 0) {
        auto& payload = frame.frame->payload;
        payload.insert(payload.end(), segment->data + frame.done,
                       segment->data + frame.done + now_done);
      }
      frame.done += now_done;
      bytes -= now_done;
      if (frame.done < segment->length) break;
    }
    out_.pop_front();
    if (segment == nullptr) continue;
    ++written_;
    if (!is_read) owner_->on_written(*this, *segment);
  }
  writing_ = false;
}

bool FakeLink::can_begin() const {
  const size_t most = connection_->reads_memory ? kMostUnderWay : 1;
  return !here().inbound.empty() && incoming_.size() < most;
}

// The number of payload bytes that can be read now.
size_t FakeLink::readable(const Incoming& incoming) const {
  if (incoming.frame->source == nullptr) return incoming.frame->payload.size() - incoming.done;
  const FakeLink* peer = there().link;
  const bool is_reachable = peer != nullptr && !peer->is_fenced_;
  return is_reachable ? incoming.frame->header.length - incoming.done : 0;
}

bool FakeLink::can_read() const {
  if (!started() || failed_ || here().readable == 0) return false;
  return can_begin() || std::any_of(incoming_.begin(), incoming_.end(),
                                    [this](const Incoming& each) { return readable(each) > 0; });
}

void FakeLink::read(size_t bytes) {
  while (bytes > 0 && can_read()) {
    std::vector<Incoming*> others;
    for (Incoming& each : incoming_) {
      if (readable(each) > 0) others.push_back(&each);
    }
    if (others.empty() || (can_begin() && network_.one_in(2))) {
      bytes -= std::min<size_t>(bytes, 24);
      if (here().readable != SIZE_MAX) --here().readable;
      if (!begin_frame()) return;
    } else {
      bytes -= read_some(*others[others.size() == 1 ? 0 : network_.below(others.size())], bytes);
    }
    land_complete();
  }
}

size_t FakeLink::read_some(Incoming& incoming, size_t bytes) {
  const size_t count = std::min({bytes, readable(incoming), here().readable});
  const FakeFrame& frame = *incoming.frame;
  const std::byte* source = frame.source != nullptr ? frame.source : frame.payload.data();
  if (incoming.destination != nullptr) {
    std::memcpy(incoming.destination + incoming.done, source + incoming.done, count);
  }
  incoming.done += count;
  moved_ += count;
  if (there().link != nullptr) there().link->moved_ += count;
  if (here().readable != SIZE_MAX) here().readable -= count;
  return count;
}

bool FakeLink::begin_frame() {
  const std::shared_ptr<FakeFrame> frame = std::move(here().inbound.front());
  here().inbound.pop_front();
  if (frame->header.acked > written_) {
    ADD_FAILURE() << "the fake link acknowledges what was not written";
    return false;
  }
  while (acked_ < frame->header.acked) {
    ++acked_;
    OutSegment* segment = unacked_.front();
    unacked_.pop_front();
    owner_->on_acked(*this, *segment);
  }
  if (frame->header.type != wire::FrameType::kData) {
    const auto* body = reinterpret_cast<const std::byte*>(frame->control.data());
    owner_->on_frame(*this, frame->header, absl::MakeConstSpan(body, frame->control.size()));
    return true;
  }
  owner_->on_frame(*this, frame->header, {});
  return begin_segment(frame);
}

bool FakeLink::begin_segment(const std::shared_ptr<FakeFrame>& frame) {
  const auto place = owner_->on_segment(*this, frame->header, frame->data);
  if (!place.ok()) {
    ADD_FAILURE() << "the peer is said to break the protocol: " << place.status();
    fail(place.status());
    return false;
  }
  network_.on_segment(side_, frame->header, frame->data, *place);
  Incoming& begun = incoming_.emplace_back();
  begun.frame = frame;
  begun.destination = *place;
  // A payload without a destination need not be read.
  if (frame->source != nullptr && *place == nullptr) begun.done = frame->header.length;
  network_.most_under_way = std::max(network_.most_under_way, incoming_.size());
  return true;
}

void FakeLink::land_complete() {
  while (!failed_ && !incoming_.empty() && incoming_.front().is_complete()) {
    incoming_.pop_front();
    ++received_;
    owner_->on_landed(*this, false);
  }
}

void FakeLink::fail(absl::Status why) {
  if (failed_ || !started()) return;
  failed_ = true;
  network_.progress().defer([this, alive = std::weak_ptr<bool>(alive_), why = std::move(why)] {
    if (!alive.expired()) owner_->on_failed(*this, why);
  });
}

// ---- Processes and devices ---------------------------------------------------------------------

FakeProcess::FakeProcess(FakeNetwork& network, int side, int rails)
    : own_id{1, static_cast<uint64_t>(side) + 1} {
  progress_ = &network.progress();
  for (Rail rail = 0; rail < rails; ++rail) {
    devices.push_back(std::make_unique<FakeDevice>(network, side, rail));
  }
}

Progress& FakeProcess::progress() { return *progress_; }

std::unique_ptr<Device::Attempt> FakeDevice::connect(absl::string_view, const wire::Hello& hello,
                                                     Connected done) {
  auto state = std::make_shared<FakeNetwork::Connecting>();
  state->side = side_;
  state->rail = rail();
  state->hello = hello;
  state->done = std::move(done);
  network_.attempts_.push_back(state);
  return std::make_unique<FakeNetwork::FakeAttempt>(state);
}

// ---- FakeNetwork -------------------------------------------------------------------------------

void FakeNetwork::go_on(const std::shared_ptr<Connecting>& attempt) {
  if (!attempt->answered) {
    attempt->answered = true;
    Channel& peer = channel(1 - attempt->side);
    if (!allow(attempt->side, attempt->rail)) {
      attempt->error = refusal;
    } else {
      const wire::Welcome welcome = peer.on_hello(attempt->rail, attempt->hello);
      attempt->generation = welcome.generation;
      if (welcome.code == wire::WelcomeCode::kDuplicate) {
        attempt->error = absl::AlreadyExistsError("duplicate");
      } else if (welcome.code != wire::WelcomeCode::kAccepted) {
        attempt->error = absl::UnavailableError("refused");
      } else {
        auto made = std::make_shared<FakeConnection>();
        made->rail = attempt->rail;
        made->reads_memory = reads_memory(attempt->rail);
        made->weight = 1 + static_cast<int>(below(20));
        made->ends[static_cast<size_t>(attempt->side)].pending = true;
        const auto rail = static_cast<size_t>(attempt->rail);
        if (rail < burst_takes.size()) made->ends[0].burst_takes = burst_takes[rail];
        connections_.push_back(made);
        attempt->connection = made;
        peer.on_accepted(attempt->rail, attempt->hello,
                         std::make_unique<FakeLink>(*this, made, 1 - attempt->side));
      }
    }
    if (!attempt->given_up) return;  // the answer comes later
  }
  std::erase(attempts_, attempt);
  if (attempt->given_up) {
    if (attempt->connection == nullptr) return;
    attempt->connection->ends[static_cast<size_t>(attempt->side)].pending = false;
    break_connection(*attempt->connection, false);
    return;
  }
  const Device::Connected done = std::move(attempt->done);
  if (!attempt->error.ok()) return done(attempt->error, attempt->generation);
  done(std::make_unique<FakeLink>(*this, attempt->connection, attempt->side), attempt->generation);
}

bool FakeNetwork::step_attempt() {
  if (attempts_.empty()) return false;
  go_on(std::shared_ptr<Connecting>(attempts_[below(attempts_.size())]));
  return true;
}

bool FakeNetwork::step() {
  std::erase_if(connections_, [](const auto& connection) {
    return connection->ends[0].link == nullptr && connection->ends[1].link == nullptr &&
           !connection->ends[0].pending && !connection->ends[1].pending;
  });
  enum class Kind { kWrite, kRead, kNotice, kAttempt };
  struct Choice {
    Kind kind;
    FakeLink* link;
    size_t attempt;
    uint64_t weight;
  };
  std::vector<Choice> choices;
  uint64_t total = 0;
  const auto add = [&](Kind kind, FakeLink* link, size_t attempt, int weight) {
    choices.push_back({kind, link, attempt, static_cast<uint64_t>(weight)});
    total += static_cast<uint64_t>(weight);
  };
  for (const auto& connection : connections_) {
    for (auto& end : connection->ends) {
      if (end.link == nullptr) continue;
      const int weight = connection->weight;
      if (end.link->can_write()) add(Kind::kWrite, end.link, 0, weight);
      if (end.link->can_read()) add(Kind::kRead, end.link, 0, weight);
      if (connection->broken && end.link->started() && !end.link->failed()) {
        add(Kind::kNotice, end.link, 0, 2);
      }
    }
  }
  for (size_t i = 0; i < attempts_.size(); ++i) {
    if (!hold(attempts_[i]->rail)) add(Kind::kAttempt, nullptr, i, 5);
  }
  if (total == 0) return false;
  uint64_t pick = below(total);
  size_t i = 0;
  for (; pick >= choices[i].weight; ++i) pick -= choices[i].weight;
  const Choice& choice = choices[i];
  switch (choice.kind) {
    case Kind::kWrite:
      choice.link->write(some_bytes());
      break;
    case Kind::kRead:
      choice.link->read(some_bytes());
      break;
    case Kind::kNotice:
      choice.link->fail(absl::UnavailableError("the test broke the connection"));
      break;
    case Kind::kAttempt:
      go_on(std::shared_ptr<Connecting>(attempts_[choice.attempt]));
      break;
  }
  return true;
}

void FakeNetwork::break_connection(FakeConnection& connection, bool silent) {
  for (auto& end : connection.ends) {
    if (!end.mute) end.readable = one_in(3) ? 0 : below(1 + some_bytes());
    end.mute = true;
  }
  if (!silent) connection.broken = true;
}

void FakeNetwork::end_silence() {
  for (const auto& connection : connections_) {
    if (connection->ends[0].mute) connection->broken = true;
  }
}

bool FakeNetwork::break_some(bool silent) {
  std::vector<FakeConnection*> live;
  for (const auto& connection : connections_) {
    if (!connection->ends[0].mute) live.push_back(connection.get());
  }
  if (live.empty()) return false;
  break_connection(*live[below(live.size())], silent);
  return true;
}

FakeConnection* FakeNetwork::connection(Rail rail) {
  for (const auto& connection : connections_) {
    if (connection->rail == rail && !connection->ends[0].mute) return connection.get();
  }
  return nullptr;
}

}  // namespace nezha::testing
