// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/engine/switch_session.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/host.h"

namespace nezha::flare {

SwitchSession::SwitchSession(Progress& progress, UdpPort& port, std::optional<UdpPort> group,
                             const message::Granted& granted, const Stagger& stagger,
                             SessionCounters& counters,
                             std::function<void(const absl::Status&)> on_over)
    : progress_(progress),
      port_(port),
      group_(std::move(group)),
      granted_(granted),
      counters_(counters),
      on_over_(std::move(on_over)),
      authenticator_(granted.key),
      alarm_(progress, [this] { on_alarm(); }) {
  for (int i = 0; i < granted.streams; ++i) {
    streams_.push_back(
        {Window(granted.window, 0, {}, stagger), {}, std::vector<Retained>(granted.window), 0});
  }
}

SwitchSession::~SwitchSession() { stop(); }

absl::Status SwitchSession::start() {
  absl::Status status = progress_.add(port_.fd(), this, EPOLLIN);
  if (status.ok() && group_) {
    status = progress_.add(group_->fd(), this, EPOLLIN);
    if (!status.ok()) progress_.remove(port_.fd());
  }
  is_running_ = status.ok();
  return status;
}

void SwitchSession::stop() {
  if (is_running_) progress_.remove(port_.fd());
  if (is_running_ && group_) progress_.remove(group_->fd());
  is_running_ = false;
  alarm_.cancel();
}

void SwitchSession::add(int stream, uint32_t blocks, BlockOwner* owner) {
  Stream& it = streams_[static_cast<size_t>(stream)];
  it.used += blocks;
  it.runs.push_back({owner, it.window.extend(blocks), blocks, blocks});
  pump();
}

void SwitchSession::forget(const BlockOwner* owner) {
  for (Stream& stream : streams_) {
    for (BlockRun& run : stream.runs) {
      if (run.owner == owner) run.owner = nullptr;
    }
  }
}

std::vector<Retained> SwitchSession::take_retained() {
  std::vector<Retained> all;
  for (Stream& stream : streams_) {
    for (Retained& kept : stream.retained) {
      if (!kept.bytes.empty()) all.push_back(std::exchange(kept, {}));
    }
  }
  return all;
}

// ---- Receiving ---------------------------------------------------------------------------------

void SwitchSession::on_events(uint32_t /*epoll_events*/) {
  receive();
  pump();
}

// Empties the group's port first: otherwise the numbers of frames at the own port would make those
// at the group's seem lost.
size_t SwitchSession::receive() {
  const size_t count = group_ ? receive(*group_) : 0;
  return count > 0 ? count : receive(port_);
}

size_t SwitchSession::receive(UdpPort& port) {
  return port.receive([&](absl::Span<const std::byte> datagram, const Address& from) {
    on_datagram(datagram, from, &port != &port_);
  });
}

void SwitchSession::on_datagram(absl::Span<const std::byte> datagram, const Address& from,
                                bool is_by_group) {
  const std::optional<Frame> frame = decode(datagram);
  if (!frame || !(from == granted_.address)) return;
  const FrameHeader& header = frame->header;
  const uint32_t index = header.session - granted_.session;
  const bool is_ours =
      header.is_down && index < streams_.size() && header.generation == granted_.generation;
  if (!is_ours || !authenticator_.verify(datagram)) return;
  if (is_by_group) unheard_ = 0;
  Stream& stream = streams_[index];
  if (const NumberRange lost = stream.window.lost_before(header); lost.count > 0) {
    ask_for(index, lost);
  }
  if (header.type == FrameType::kLost) {
    return stream.window.on_lost(decode_lost(frame->payload), now());
  }
  const uint32_t seq = header.block.seq;
  if (header.type == FrameType::kResult) {
    const bool was_awaited = on_result(stream, seq, frame->payload);
    if (was_awaited && group_ && !is_by_group) on_unheard();
    return;
  }
  const BlockRun* run = run_of(stream, seq);
  if (run == nullptr || run->owner == nullptr) return;
  if (header.type == FrameType::kPending) {
    stream.window.on_pending(seq, now());
    run->owner->on_pending(decode_ranges(frame->payload));
  } else if (header.type == FrameType::kMismatch) {
    run->owner->on_mismatch(*frame);
  }
}

bool SwitchSession::on_result(Stream& stream, uint32_t seq, absl::Span<const std::byte> result) {
  BlockRun* const run = run_of(stream, seq);
  if (run == nullptr || !stream.window.on_result(seq, now())) return false;
  const uint32_t block = seq - run->first;
  BlockOwner* const owner = run->owner;
  if (owner == nullptr) return true;
  if (!owner->take(block, result)) {
    owner->on_misfit();
    return true;
  }
  counters_.bytes_received += result.size();
  if (run->count - block <= granted_.window) {
    owner->retain(block, stream.retained[seq % granted_.window]);
  }
  if (--run->missing > 0) return true;
  stream.runs.erase(stream.runs.begin() + (run - &stream.runs.front()));
  owner->on_complete();
  return true;
}

void SwitchSession::on_unheard() {
  const Nanos time = now();
  if (unheard_ > 0 && time - unheard_at_ < kDeafPause) return;
  ++unheard_;
  unheard_at_ = time;
}

// Returns null if there is no such block, or if its run is complete.
SwitchSession::BlockRun* SwitchSession::run_of(Stream& stream, uint32_t seq) {
  for (BlockRun& run : stream.runs) {
    if (seq - run.first < run.count) return &run;
  }
  return nullptr;
}

// ---- Sending -----------------------------------------------------------------------------------

void SwitchSession::pump() {
  if (!is_running_) return;
  const Nanos time = now();
  Nanos next = Window::kNever;
  for (size_t i = 0; i < streams_.size(); ++i) {
    Window& window = streams_[i].window;
    while (const auto seq = window.take_overdue(time)) {
      ++counters_.resent;
      send(i, *seq);
    }
    while (const auto seq = window.take_new(time)) send(i, *seq);
    next = std::min(next, window.next_due());
    port_.flush();  // so each train is of one stream, and goes to the switch's thread for it
  }
  // An alarm that fires early looks again.
  if (next == Window::kNever || (alarm_.armed() && alarm_at_ <= next)) return;
  alarm_at_ = next;
  alarm_.start(next);
}

void SwitchSession::send(size_t stream, uint32_t seq) {
  const BlockRun* const run = run_of(streams_[stream], seq);
  if (run == nullptr || run->owner == nullptr) return;
  FrameHeader header = header_of(FrameType::kContribution, stream);
  header.is_numbered = true;
  header.number = streams_[stream].window.number_of(seq);
  header.block = run->owner->id();
  header.block.seq = seq;
  const absl::Span<const std::byte> payload = run->owner->contribution(seq - run->first);
  counters_.bytes_sent += payload.size();
  port_.send(encode(header, payload, authenticator_, port_.buffer()), {&granted_.address, 1});
}

void SwitchSession::ask_for(size_t stream, const NumberRange& numbers) {
  FrameHeader header = header_of(FrameType::kLost, stream);
  header.number = streams_[stream].window.next_number();
  port_.send(encode(header, encode_lost(numbers), authenticator_, port_.buffer()),
             {&granted_.address, 1});
}

FrameHeader SwitchSession::header_of(FrameType type, size_t stream) const {
  return {.type = type,
          .child = granted_.child,
          .generation = granted_.generation,
          .session = granted_.session + static_cast<uint32_t>(stream)};
}

void SwitchSession::on_alarm() {
  // Counts what came while this process was not running; the limit keeps a flood from holding it
  // here.
  constexpr int kMostTurns = 64;
  for (int turn = 0; turn < kMostTurns && receive() > 0; ++turn) {
  }
  if (is_deaf()) {
    return end(absl::UnavailableError(absl::StrCat(
        "data that the switch at ", granted_.address.str(), " sends to the multicast group ",
        granted_.group->str(), " does not reach host ", host_name(),
        "; the next session uses no multicast")));
  }
  const Nanos time = now();
  for (const Stream& stream : streams_) {
    const Nanos since = stream.window.silent_since();
    if (since != Window::kNever && time - since > kSilence) {
      return end(absl::UnavailableError(absl::StrCat("the switch at ", granted_.address.str(),
                                                     " has said nothing for ",
                                                     (time - since) / kMillisecond, " ms")));
    }
    if (stream.used > kMaxUsed) {
      return end(absl::ResourceExhaustedError("the session's block numbers are used up"));
    }
  }
  pump();
}

void SwitchSession::end(const absl::Status& why) {
  if (on_over_ != nullptr) std::exchange(on_over_, nullptr)(why);
}

}  // namespace nezha::flare
