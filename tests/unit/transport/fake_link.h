// SPDX-License-Identifier: Apache-2.0
// In-memory links between two channels of one process. Nothing happens by itself: a test performs
// one event at a time, chosen at random from a seed, in steps of a few bytes written or read. A
// connection delivers in order. Connections may overtake each other, break at any point and lose
// what is in flight, and the ends notice a break late or never. A connection is a stream of bytes,
// or its ends read from each other's memory: then a long segment is a header that says where its
// payload is, and the receiver reads the payloads of several segments in turn.
#pragma once

#include <array>
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
#include "transport/channel.h"
#include "transport/device.h"
#include "transport/link.h"
#include "transport/progress.h"
#include "transport/wire.h"

namespace nezha::testing {

class FakeLink;
class FakeNetwork;

// A frame in flight; of a data frame's payload, the part that is written.
struct FakeFrame {
  wire::FrameHeader header;
  wire::DataHeader data;
  std::string control;
  std::vector<std::byte> payload;
  const std::byte* source = nullptr;  // or the sender's memory, from which the receiver reads
};

// What two FakeLinks share.
struct FakeConnection {
  struct End {
    FakeLink* link = nullptr;  // null: not made yet, or destroyed
    bool pending = false;      // made when the connecting side learns of it
    std::deque<std::shared_ptr<FakeFrame>> inbound;
    bool mute = false;           // what is written to it is lost
    size_t readable = SIZE_MAX;  // payload bytes and frames that can still be read after a cut
    Nanos unanswered = 0;        // by the machine of the other end
    Link::Packets packets;       // sent by this end
    int pings = 0;               // sent by this end
    int burst_frames = 0;        // sent by this end
    Nanos burst_takes = 0;       // how long a burst is in flight
    Nanos has_burst_at = 0;
    uint64_t submitted = 0;  // bytes of segments that this end submitted
  };
  std::array<End, 2> ends;
  Rail rail = kAnyRail;
  bool reads_memory = false;
  bool broken = false;  // both ends will learn of it
  int weight = 10;      // how often its events are chosen
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
  void withdraw(OutSegment& segment) override;
  bool drop_incoming(size_t nth) override;
  const RecycledDeque<OutSegment*>& unacked() const override { return unacked_; }
  Health health() const override {
    return {.delivered = moved_,
            .moved = moved_,
            .unanswered = here().unanswered,
            .confirmation_time = 0,
            .packets = here().packets};
  }
  size_t largest_packet() const override { return 1500; }
  void send_burst(int frames) override {
    here().burst_frames += frames;
    here().has_burst_at = now() + here().burst_takes;
    for (int i = 1; i < frames; ++i) send(wire::FrameType::kFiller, {});
    send(wire::FrameType::kPing, {});
  }
  bool has_burst_arrived() const override { return now() >= here().has_burst_at; }
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
    std::shared_ptr<FakeFrame> frame = std::make_shared<FakeFrame>();
    OutSegment* segment = nullptr;
    bool begun = false;
    size_t done = 0;  // payload bytes
  };

  FakeConnection::End& here() { return connection_->ends[static_cast<size_t>(side_)]; }
  const FakeConnection::End& here() const { return connection_->ends[static_cast<size_t>(side_)]; }
  FakeConnection::End& there() { return connection_->ends[static_cast<size_t>(1 - side_)]; }
  const FakeConnection::End& there() const {
    return connection_->ends[static_cast<size_t>(1 - side_)];
  }
  // A segment whose header has been read.
  struct Incoming {
    std::shared_ptr<FakeFrame> frame;
    std::byte* destination = nullptr;
    size_t done = 0;  // payload bytes
    bool is_complete() const { return done == frame->header.length; }
  };
  wire::FrameHeader make_header(wire::FrameType type, uint8_t flags, size_t length);
  void append_segment();
  bool can_begin() const;
  size_t readable(const Incoming& incoming) const;
  size_t read_some(Incoming& incoming, size_t bytes);
  bool begin_frame();
  bool begin_segment(const std::shared_ptr<FakeFrame>& frame);
  void land_complete();

  FakeNetwork& network_;
  std::shared_ptr<FakeConnection> connection_;
  int side_;
  LinkOwner* owner_ = nullptr;
  bool failed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  std::deque<OutFrame> out_;
  RecycledDeque<OutSegment*> pending_, unacked_;
  uint64_t written_ = 0, acked_ = 0, ack_sent_ = 0, received_ = 0;
  uint64_t moved_ = 0;  // payload bytes, read by either end
  bool writing_ = false;

  bool is_fenced_ = false;  // the peer can read no more memory through it
  std::deque<Incoming> incoming_;
};

// One end of a channel, and what the channel needs of its process.
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
  RailMask rails() const override { return rail_bit(static_cast<Rail>(devices.size())) - 1; }
  Membership membership(const UniqueId&) const override { return Membership::kMember; }
  void on_abort(const wire::Abort& abort) override { heard_aborts.push_back(abort); }
  void on_roll_call(const wire::RollCall&) override {}
  void on_peer_gone(const UniqueId& job, const absl::Status&) override { gone.push_back(job); }
  void on_suspicion(Rail rail) override { suspicions.push_back(rail); }
  const std::deque<wire::Abort>& aborts() const override { return own_aborts; }

  BufferPool buffers;
  UniqueId own_id;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Channel> channel;
  std::deque<wire::Abort> own_aborts;
  std::vector<wire::Abort> heard_aborts;
  std::vector<UniqueId> gone;  // contexts whose process at the other side has died
  std::vector<Rail> suspicions;

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
  // How long bursts take from side 0, by rail, on links that are made from now on.
  std::vector<Nanos> burst_takes;

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

  // Performs one event. Returns false if none is possible.
  bool step();
  // Performs events until none is possible.
  void settle_down(int limit = 1'000'000) {
    progress_.run_deferred();
    for (int i = 0; i < limit && step(); ++i) progress_.run_deferred();
  }
  // Performs one event of a connection attempt.
  bool step_attempt();

  // Breaks the connection. What is in flight arrives up to a random point. Both ends notice some
  // time later, or if `silent` only after end_silence().
  void break_connection(FakeConnection& connection, bool silent);
  void end_silence();
  // Breaks a connection that both ends use. Returns false if there is none.
  bool break_some(bool silent);
  // The live connection of the rail, or null.
  FakeConnection* connection(Rail rail);
  const std::vector<std::shared_ptr<FakeConnection>>& connections() const { return connections_; }

  // Whether a connection attempt succeeds. Default: yes.
  std::function<bool(int side, Rail rail)> allow = [](int, Rail) { return true; };
  absl::Status refusal = absl::AbortedError("the test refuses");
  // Whether a connection's ends read from each other's memory.
  std::function<bool(Rail rail)> reads_memory = [](Rail) { return false; };
  // Whether attempts on the rail never end.
  std::function<bool(Rail rail)> hold = [](Rail) { return false; };
  // Whether closing a link stays unnoticed at the other end.
  bool ends_vanish = false;
  // The largest number of segments that were in flight on a connection at once.
  size_t most_under_way = 0;
  // Called for each segment whose header is read, with the side that reads it and the place for the
  // payload.
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

}  // namespace nezha::testing
