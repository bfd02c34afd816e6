// SPDX-License-Identifier: Apache-2.0
// What tests of ports share: devices that connect when a test tells them to, links that keep what
// is sent, and the process that owns them.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/log.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/recording_link.h"
#include "tests/unit/transport/virtual_clock.h"
#include "transport/channel_owner.h"
#include "transport/contact.h"
#include "transport/ports.h"

namespace nezha::testing {

// A link that stores the frames it sends; they outlive it.
class KeptLink final : public RecordingLink {
 public:
  struct Frames {
    std::vector<wire::FrameType> sent;
    int acks = 0;
    bool is_gone = false;
    int count(wire::FrameType type) const {
      return static_cast<int>(std::count(sent.begin(), sent.end(), type));
    }
  };

  explicit KeptLink(std::shared_ptr<Frames> frames) : frames_(std::move(frames)) {}
  ~KeptLink() override { frames_->is_gone = true; }
  void start(LinkOwner*, Rail rail, uint64_t id) override {
    rail_ = rail;
    id_ = id;
  }
  void send(wire::FrameType type, absl::string_view) override { frames_->sent.push_back(type); }
  void flush_ack() override { ++frames_->acks; }
  size_t largest_packet() const override { return 9000; }
  bool has_arrived() const override { return has_all_arrived; }

  bool has_all_arrived = true;

 private:
  std::shared_ptr<Frames> frames_;
};

class KeptDevice final : public Device {
 public:
  explicit KeptDevice(Rail rail) : Device(std::string(1, static_cast<char>('a' + rail)), rail) {}
  std::unique_ptr<Attempt> connect(absl::string_view address, const wire::Hello& hello,
                                   Connected) override {
    addresses.emplace_back(address);
    hellos.push_back(hello);
    return std::make_unique<Attempt>();
  }
  std::string address() const override { return "here"; }
  bool carrier() const override { return has_carrier; }

  bool has_carrier = true;
  std::vector<std::string> addresses;  // the addresses of connect() calls
  std::vector<wire::Hello> hellos;     // the hellos of connect() calls
};

class PortFixture : public ::testing::Test, public ChannelOwner {
 protected:
  static constexpr UniqueId kJob{7, 7}, kOtherJob{8, 8};

  PortFixture() {
    log().set_level(spdlog::level::err);
    progress_ = *Progress::create();
    guard_ = std::make_unique<Progress::Guard>(*progress_);
    for (const Rail rail : {0, 1}) devices_.push_back(std::make_unique<KeptDevice>(rail));
    contact_.describe("the peer");
    contact_.add({{"a", "a-there"}, {"b", "b-there"}}, {});
    ports_ = std::make_unique<Ports>(*this, contact_, scheduler_);
  }
  ~PortFixture() override {
    ports_.reset();
    guard_.reset();
  }

  Progress& progress() override { return *progress_; }
  BufferPool& pool() override { return pool_; }
  const UniqueId& process() const override { return contact_.process(); }
  Device* device(Rail rail) override { return devices_[static_cast<size_t>(rail)].get(); }
  RailMask rails() const override { return rail_bit(static_cast<Rail>(devices_.size())) - 1; }
  Membership membership(const UniqueId& job) const override {
    return job == kJob ? Membership::kMember : Membership::kUnknown;
  }
  void on_abort(const wire::Abort&) override { ++heard_aborts_; }
  void on_roll_call(const wire::RollCall&) override {}
  void on_peer_gone(const UniqueId&, const absl::Status&) override {}
  void on_suspicion(Rail) override {}
  const std::deque<wire::Abort>& aborts() const override { return aborts_; }

  KeptDevice& kept(Rail rail) { return *devices_[static_cast<size_t>(rail)]; }
  Port& port(Rail rail) { return ports_->at(rail); }
  KeptLink& link(Rail rail) { return static_cast<KeptLink&>(*port(rail).link()); }
  // Brings up a link with this id on the rail. Returns the frames that it sends.
  std::shared_ptr<KeptLink::Frames> link_up(Rail rail, uint64_t id = 11, double rate = 1e9) {
    auto frames = std::make_shared<KeptLink::Frames>();
    port(rail).link_up(std::make_unique<KeptLink>(frames), nullptr, id, 1);
    scheduler_.link_up(rail, port(rail).link(), rate);
    return frames;
  }
  void link_down(Rail rail, const absl::Status& why = absl::UnavailableError("it was cut")) {
    std::deque<OutSegment*> orphans;
    scheduler_.link_down(rail, orphans);
    port(rail).link_down(why);
  }
  // The peer's machine acknowledges only small frames.
  void lose_large_frames(Rail rail) {
    link(rail).state.unanswered = kMillisecond;
    port(rail).look(0, 0, now());
    clock_.advance(300 * kMillisecond);
    port(rail).look(0, 0, now());
  }

  VirtualClock clock_;
  BufferPool pool_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Progress::Guard> guard_;  // held throughout, so that no other thread drives
  std::vector<std::unique_ptr<KeptDevice>> devices_;
  std::deque<wire::Abort> aborts_;
  int heard_aborts_ = 0;
  Contact contact_{UniqueId{1, 1}, UniqueId{2, 2}};
  Scheduler scheduler_;
  std::unique_ptr<Ports> ports_;
};

}  // namespace nezha::testing
