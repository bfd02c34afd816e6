// Links in memory, between two channels of one process. Nothing happens by itself: a test lets one
// event after the other happen, by a seeded random choice, at the grain of a few bytes written or
// read. A connection delivers in order; connections overtake each other as they like, break at any
// point, lose what is under way, and are noticed to be broken late or not at all.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transport/channel.h"
#include "transport/device.h"
#include "transport/link.h"
#include "transport/progress.h"
#include "transport/wire.h"

namespace nezha::testing {

class FakeLink;
class FakeNetwork;

// A frame under way. Of a data frame's payload as much as was written.
struct FakeFrame {
  wire::FrameHeader header;
  wire::DataHeader data;
  std::string control;
  std::vector<std::byte> payload;
};

// What two FakeLinks share.
struct FakeConnection {
  struct End {
    FakeLink* link = nullptr;  // null: not made yet, or destroyed
    bool pending = false;      // will be made when the connecting side hears of it
    std::deque<FakeFrame> inbound;
    bool mute = false;           // what is written to it vanishes
    size_t readable = SIZE_MAX;  // payload bytes and frames that still can be read, when cut
  };
  std::array<End, 2> ends;
  Rail rail = kAnyRail;
  bool broken = false;  // both ends will be told
  int weight = 10;      // how often its events come
};

class FakeLink final : public Link {
 public:
  FakeLink(FakeNetwork& network, std::shared_ptr<FakeConnection> connection, int side);
  ~FakeLink() override;

  void start(LinkOwner* owner, Rail rail, uint64_t id) override {
    owner_ = owner;
    rail_ = rail;
    id_ = id;
  }
  void submit(OutSegment& segment) override;
  void send(wire::FrameType type, absl::string_view body) override;
  void flush_ack() override {
    if (received_ != ack_sent_) send(wire::FrameType::kAck, {});
  }
  void answer() override { send(wire::FrameType::kAck, {}); }
  void drop_incoming() override { destination_ = nullptr; }
  const std::deque<OutSegment*>& unacked() const override { return unacked_; }
  uint64_t moved() const override { return moved_; }
  void shut_down() override {}

  bool started() const { return owner_ != nullptr; }
  bool failed() const { return failed_; }
  bool can_write() const { return started() && !failed_ && (!out_.empty() || !pending_.empty()); }
  bool can_read() const;
  void write(size_t bytes);
  void read(size_t bytes);
  void fail(absl::Status why);

 private:
  struct OutFrame {
    FakeFrame frame;
    OutSegment* segment = nullptr;
    bool begun = false;
    size_t done = 0;  // payload bytes
  };

  FakeConnection::End& here() { return connection_->ends[static_cast<size_t>(side_)]; }
  const FakeConnection::End& here() const { return connection_->ends[static_cast<size_t>(side_)]; }
  FakeConnection::End& there() { return connection_->ends[static_cast<size_t>(1 - side_)]; }
  wire::FrameHeader make_header(wire::FrameType type, uint8_t flags, size_t length);
  bool begin_frame();
  void end_payload();

  FakeNetwork& network_;
  std::shared_ptr<FakeConnection> connection_;
  int side_;
  LinkOwner* owner_ = nullptr;
  bool failed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  std::deque<OutFrame> out_;
  std::deque<OutSegment*> pending_, unacked_;
  uint64_t written_ = 0, acked_ = 0, ack_sent_ = 0, received_ = 0;
  uint64_t moved_ = 0;  // payload bytes, read by either end
  bool writing_ = false;

  bool in_payload_ = false;
  uint32_t payload_left_ = 0;
  size_t payload_read_ = 0;
  std::byte* destination_ = nullptr;
};

// One end of a channel, and what it needs of its process.
class FakeProcess final : public ChannelOwner {
 public:
  FakeProcess(FakeNetwork& network, int side, int rails);
  ~FakeProcess() = default;

  Progress& progress() override;
  BufferPool& pool() override { return buffers; }
  const UniqueId& process() const override { return own_id; }
  Device* device(Rail rail) override {
    const auto index = static_cast<size_t>(rail);
    return index < devices.size() ? devices[index].get() : nullptr;
  }
  void on_abort(const wire::Abort& abort) override { heard_aborts.push_back(abort); }
  void on_roll_call(const wire::RollCall&) override {}
  const std::deque<wire::Abort>& aborts() const override { return own_aborts; }

  BufferPool buffers;
  UniqueId own_id;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Channel> channel;
  std::deque<wire::Abort> own_aborts;
  std::vector<wire::Abort> heard_aborts;

 private:
  Progress* progress_ = nullptr;
};

class FakeDevice final : public Device {
 public:
  FakeDevice(FakeNetwork& network, int side, Rail rail)
      : Device(std::string(1, static_cast<char>('a' + rail)), rail),
        network_(network),
        side_(side) {}
  std::unique_ptr<Attempt> connect(absl::string_view address, const wire::Hello& hello,
                                   Connected done) override;
  std::string address() const override { return absl::StrCat("fake-", name()); }
  bool carrier() const override { return carrier_; }
  void set_carrier(bool up) { carrier_ = up; }

 private:
  FakeNetwork& network_;
  int side_;
  bool carrier_ = true;
};

// Two processes, their devices, and the network in between.
class FakeNetwork {
 public:
  using Random = std::mt19937_64;
  static constexpr UniqueId kJob{7, 7};

  FakeNetwork(Progress& progress, uint64_t seed, int rails) : progress_(progress), random_(seed) {
    for (const int side : {0, 1}) {
      processes_[static_cast<size_t>(side)] = std::make_unique<FakeProcess>(*this, side, rails);
    }
    std::map<std::string, std::string> addresses;
    for (const auto& device : side(0).devices) addresses[device->name()] = device->address();
    for (const int i : {0, 1}) {
      side(i).channel = std::make_unique<Channel>(side(i), side(1 - i).process());
      side(i).channel->set_peer(absl::StrCat("side ", 1 - i), kJob, addresses);
    }
  }
  ~FakeNetwork() {
    progress_.run_deferred();
    for (auto& process : processes_) process->channel.reset();
  }
  FakeNetwork(const FakeNetwork&) = delete;
  FakeNetwork& operator=(const FakeNetwork&) = delete;

  Progress& progress() { return progress_; }
  Random& random() { return random_; }
  uint64_t below(uint64_t limit) { return random_() % limit; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  FakeProcess& side(int side) { return *processes_[static_cast<size_t>(side)]; }
  Channel& channel(int i) { return *side(i).channel; }

  // Lets one thing happen. False: there is nothing that could.
  bool step();
  // All that can happen, until nothing can.
  void settle_down(int limit = 1'000'000) {
    progress_.run_deferred();
    for (int i = 0; i < limit && step(); ++i) progress_.run_deferred();
  }
  // Only the connections' making.
  bool step_attempt();

  // The connection breaks. What is under way arrives up to a random point, and both ends notice
  // at some time; `silent`: they do not, until `end_silence`.
  void break_connection(FakeConnection& connection, bool silent);
  void end_silence();
  // Breaks one that both ends use. False: there is none.
  bool break_some(bool silent);
  // The live connection of a rail; null: there is none.
  FakeConnection* connection(Rail rail);
  const std::vector<std::shared_ptr<FakeConnection>>& connections() const { return connections_; }

  // Whether a connection attempt succeeds. Default: yes.
  std::function<bool(int side, Rail rail)> allow = [](int, Rail) { return true; };
  absl::Status refusal = absl::AbortedError("the test refuses");
  // Told of each segment whose header is read: by whom, and where its payload goes.
  std::function<void(int side, const wire::FrameHeader&, const wire::DataHeader&, std::byte*)>
      on_segment = [](int, const auto&, const auto&, std::byte*) {};

 private:
  friend class FakeLink;
  friend class FakeDevice;
  struct Connecting {
    int side = 0;
    Rail rail = kAnyRail;
    wire::Hello hello;
    Device::Connected done;
    bool given_up = false;
    bool answered = false;
    absl::Status error;
    uint32_t generation = 0;
    std::shared_ptr<FakeConnection> connection;
  };
  class FakeAttempt final : public Device::Attempt {
   public:
    explicit FakeAttempt(std::shared_ptr<Connecting> state) : state_(std::move(state)) {}
    ~FakeAttempt() override {
      state_->given_up = true;
      state_->done = nullptr;
    }

   private:
    std::shared_ptr<Connecting> state_;
  };

  void go_on(const std::shared_ptr<Connecting>& attempt);
  size_t some_bytes() {
    switch (below(4)) {
      case 0:
        return 1 + below(64);
      case 1:
        return 1 + below(4096);
      default:
        return 1 + below(512 << 10);
    }
  }

  Progress& progress_;
  Random random_;
  std::array<std::unique_ptr<FakeProcess>, 2> processes_;
  std::vector<std::shared_ptr<FakeConnection>> connections_;
  std::vector<std::shared_ptr<Connecting>> attempts_;
};

// ---- FakeLink ----------------------------------------------------------------------------------

inline FakeLink::FakeLink(FakeNetwork& network, std::shared_ptr<FakeConnection> connection,
                          int side)
    : network_(network), connection_(std::move(connection)), side_(side) {
  here().link = this;
  here().pending = false;
}

inline FakeLink::~FakeLink() {
  here().link = nullptr;
  // The peer notices that, late; what was under way to it may arrive or not.
  network_.break_connection(*connection_, false);
}

inline wire::FrameHeader FakeLink::make_header(wire::FrameType type, uint8_t flags, size_t length) {
  wire::FrameHeader header;
  header.type = type;
  header.flags = flags;
  header.length = static_cast<uint32_t>(length);
  header.acked = ack_sent_ = received_;
  header.credit = owner_->credit();
  return header;
}

inline void FakeLink::submit(OutSegment& segment) {
  unacked_.push_back(&segment);
  pending_.push_back(&segment);
  // A real link writes from inside of submit, and reports it.
  if (!failed_ && network_.one_in(2)) write(network_.some_bytes());
}

inline void FakeLink::send(wire::FrameType type, absl::string_view body) {
  if (failed_) return;
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

inline void FakeLink::write(size_t bytes) {
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

inline bool FakeLink::can_read() const {
  if (!started() || failed_ || here().readable == 0) return false;
  if (!in_payload_) return !here().inbound.empty();
  return payload_read_ < here().inbound.front().payload.size();
}

inline void FakeLink::read(size_t bytes) {
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
inline bool FakeLink::begin_frame() {
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

inline void FakeLink::end_payload() {
  in_payload_ = false;
  destination_ = nullptr;
  here().inbound.pop_front();
  ++received_;
  owner_->on_landed(*this);
}

inline void FakeLink::fail(absl::Status why) {
  if (failed_ || !started()) return;
  failed_ = true;
  network_.progress().defer([this, alive = std::weak_ptr<bool>(alive_), why = std::move(why)] {
    if (!alive.expired()) owner_->on_failed(*this, why);
  });
}

// ---- Processes and devices ---------------------------------------------------------------------

inline FakeProcess::FakeProcess(FakeNetwork& network, int side, int rails)
    : own_id{1, static_cast<uint64_t>(side) + 1} {
  progress_ = &network.progress();
  for (Rail rail = 0; rail < rails; ++rail) {
    devices.push_back(std::make_unique<FakeDevice>(network, side, rail));
  }
}

inline Progress& FakeProcess::progress() { return *progress_; }

inline std::unique_ptr<Device::Attempt> FakeDevice::connect(absl::string_view,
                                                            const wire::Hello& hello,
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

inline void FakeNetwork::go_on(const std::shared_ptr<Connecting>& attempt) {
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

inline bool FakeNetwork::step_attempt() {
  if (attempts_.empty()) return false;
  go_on(std::shared_ptr<Connecting>(attempts_[below(attempts_.size())]));
  return true;
}

inline bool FakeNetwork::step() {
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
  for (size_t i = 0; i < attempts_.size(); ++i) add(Kind::kAttempt, nullptr, i, 5);
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

inline void FakeNetwork::break_connection(FakeConnection& connection, bool silent) {
  for (auto& end : connection.ends) {
    if (!end.mute) end.readable = one_in(3) ? 0 : below(1 + some_bytes());
    end.mute = true;
  }
  if (!silent) connection.broken = true;
}

inline void FakeNetwork::end_silence() {
  for (const auto& connection : connections_) {
    if (connection->ends[0].mute) connection->broken = true;
  }
}

inline bool FakeNetwork::break_some(bool silent) {
  std::vector<FakeConnection*> live;
  for (const auto& connection : connections_) {
    if (!connection->ends[0].mute) live.push_back(connection.get());
  }
  if (live.empty()) return false;
  break_connection(*live[below(live.size())], silent);
  return true;
}

inline FakeConnection* FakeNetwork::connection(Rail rail) {
  for (const auto& connection : connections_) {
    if (connection->rail == rail && !connection->ends[0].mute) return connection.get();
  }
  return nullptr;
}

}  // namespace nezha::testing
