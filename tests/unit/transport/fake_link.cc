// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/transport/fake_link.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "gtest/gtest.h"

namespace nezha::testing {

// ---- FakeLink ----------------------------------------------------------------------------------

FakeLink::FakeLink(FakeNetwork& network, std::shared_ptr<FakeConnection> connection, int side)
    : network_(network), connection_(std::move(connection)), side_(side) {
  here().link = this;
  here().pending = false;
}

FakeLink::~FakeLink() {
  here().link = nullptr;
  // The peer notices that, late; what was under way to it may arrive or not.
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
  // A real link writes from inside of submit, and reports it.
  if (!failed_ && network_.one_in(2)) write(network_.some_bytes());
}

void FakeLink::send(wire::FrameType type, absl::string_view body) {
  if (failed_) return;
  if (type == wire::FrameType::kPing) ++here().pings;
  OutFrame frame;
  frame.frame.header = make_header(type, 0, body.size());
  frame.frame.control = std::string(body);
  // Ahead of segments that were not begun.
  auto place = out_.end();
  while (place != out_.begin() && std::prev(place)->segment != nullptr &&
         !std::prev(place)->begun) {
    --place;
  }
  out_.insert(place, std::move(frame));
}

void FakeLink::write(size_t bytes) {
  if (writing_ || failed_) return;
  writing_ = true;
  while (bytes > 0 && can_write()) {
    if (out_.empty()) {
      OutSegment* segment = pending_.front();
      pending_.pop_front();
      OutFrame frame;
      frame.segment = segment;
      frame.frame.header = make_header(wire::FrameType::kData, segment->flags, segment->length);
      frame.frame.data = segment->header;
      out_.push_back(std::move(frame));
    }
    OutFrame& frame = out_.front();
    if (!frame.begun) {
      frame.begun = true;
      if (!there().mute) there().inbound.push_back(frame.frame);
      bytes -= std::min<size_t>(bytes, 24);
    }
    OutSegment* segment = frame.segment;
    if (segment != nullptr) {
      const size_t now_done = std::min<size_t>(bytes, segment->length - frame.done);
      if (!there().mute && now_done > 0) {
        auto& payload = there().inbound.back().payload;
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
    owner_->on_written(*this, *segment);
  }
  writing_ = false;
}

bool FakeLink::can_read() const {
  if (!started() || failed_ || here().readable == 0) return false;
  if (!in_payload_) return !here().inbound.empty();
  return payload_read_ < here().inbound.front().payload.size();
}

void FakeLink::read(size_t bytes) {
  while (bytes > 0 && can_read()) {
    if (!in_payload_) {
      bytes -= std::min<size_t>(bytes, 24);
      if (here().readable != SIZE_MAX) --here().readable;
      if (!begin_frame()) return;
      continue;
    }
    const auto& payload = here().inbound.front().payload;
    const size_t count = std::min({bytes, payload.size() - payload_read_, here().readable});
    if (destination_ != nullptr) {
      std::memcpy(destination_, payload.data() + payload_read_, count);
      destination_ += count;
    }
    payload_read_ += count;
    moved_ += count;
    if (there().link != nullptr) there().link->moved_ += count;
    payload_left_ -= static_cast<uint32_t>(count);
    bytes -= count;
    if (here().readable != SIZE_MAX) here().readable -= count;
    if (payload_left_ == 0) end_payload();
  }
}

// False: the link has failed.
bool FakeLink::begin_frame() {
  const FakeFrame& frame = here().inbound.front();
  if (frame.header.acked > written_) {
    ADD_FAILURE() << "the fake link acknowledges what was not written";
    return false;
  }
  while (acked_ < frame.header.acked) {
    ++acked_;
    OutSegment* segment = unacked_.front();
    unacked_.pop_front();
    owner_->on_acked(*this, *segment);
  }
  if (frame.header.type != wire::FrameType::kData) {
    const FakeFrame control = std::move(here().inbound.front());
    here().inbound.pop_front();
    owner_->on_frame(*this, control.header,
                     absl::MakeConstSpan(reinterpret_cast<const std::byte*>(control.control.data()),
                                         control.control.size()));
    return true;
  }
  owner_->on_frame(*this, frame.header, {});
  const auto place = owner_->on_segment(*this, frame.header, frame.data);
  if (!place.ok()) {
    ADD_FAILURE() << "the peer is said to break the protocol: " << place.status();
    fail(place.status());
    return false;
  }
  network_.on_segment(side_, frame.header, frame.data, *place);
  destination_ = *place;
  payload_left_ = frame.header.length;
  payload_read_ = 0;
  in_payload_ = true;
  if (payload_left_ == 0) end_payload();
  return true;
}

void FakeLink::end_payload() {
  in_payload_ = false;
  destination_ = nullptr;
  here().inbound.pop_front();
  ++received_;
  owner_->on_landed(*this);
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
