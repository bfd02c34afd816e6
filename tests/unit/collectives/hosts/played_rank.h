// SPDX-License-Identifier: Apache-2.0
// Ranks whose parts the test plays, so that it decides what a task receives, when, and by which
// rail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "collectives/signature.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/hosts/world.h"

namespace nezha {

// One rank's messages with one peer for an operation: one to the peer, and one from it. Used with
// the lock of the rank held.
class PlayedRank final : Receiver, Sender {
 public:
  struct Segment {
    uint64_t offset;
    size_t length;
    Rail rail;
  };

  PlayedRank(Rank& rank, int peer, ScheduleKind schedule, const Work& work)
      : channel_(*rank.group.channels[static_cast<size_t>(peer)]) {
    Operation op;
    op.collective = work.collective;
    op.root = work.root;
    op.elements = work.elements;
    op.element_size = sizeof(float);
    op.operation = work.operation;
    op.tag = work.tag;
    EnginePlan plan;
    plan.schedule = schedule;
    info_ = message_info(rank.group, {op, {}, 0}, plan, 0);
  }
  ~PlayedRank() { detach(); }
  PlayedRank(const PlayedRank&) = delete;
  PlayedRank& operator=(const PlayedRank&) = delete;

  // What the rank sends to the peer, by parts.
  template <typename T>
  void set_contents(const std::vector<T>& contents) {
    contents_.resize(contents.size() * sizeof(T));
    std::memcpy(contents_.data(), contents.data(), contents_.size());
  }
  // Sends a part, in one segment if a rail is named.
  void push(uint64_t offset, size_t length, Rail rail = kAnyRail) {
    const Route route{.granule = sizeof(float)};
    if (message_ == nullptr) message_ = channel_.open(info(contents_.size()), route, this);
    channel_.push(*message_, offset, contents_.data() + offset, length, rail);
  }
  // Asks for the peer's message.
  void receive(size_t total) {
    memory_.resize(total);
    Inbox::Ticket* const ticket = channel_.post(info(total), this);
    if (received_ < total && !mismatch_) ticket_ = ticket;  // else the ticket is gone already
  }

  Channel& channel() { return channel_; }
  const std::vector<Segment>& came() const { return came_; }
  size_t received() const { return received_; }  // bytes
  // The bytes that have come by that rail from `offset` of the message on, up to `end`.
  size_t received_by(Rail rail, uint64_t offset, uint64_t end) const {
    size_t bytes = 0;
    for (const Segment& each : came_) {
      const bool counts = each.rail == rail && each.offset >= offset && each.offset < end;
      bytes += counts ? each.length : 0;
    }
    return bytes;
  }
  template <typename T>
  std::vector<T> message() const {
    std::vector<T> values(memory_.size() / sizeof(T));
    std::memcpy(values.data(), memory_.data(), memory_.size());
    return values;
  }
  // What the peer sends in place of the message that was asked for.
  const std::optional<wire::MessageInfo>& mismatch() const { return mismatch_; }

 private:
  wire::MessageInfo info(uint64_t total) const {
    wire::MessageInfo info = info_;
    info.total = total;
    return info;
  }
  std::byte* place(uint64_t offset, size_t /*length*/) override { return memory_.data() + offset; }
  void landed(uint64_t offset, size_t length, Rail rail) override {
    came_.push_back({offset, length, rail});
    received_ += length;
    if (received_ == memory_.size()) ticket_ = nullptr;
  }
  void released(uint64_t /*offset*/, size_t /*length*/) override {}
  void settled() override {}
  void failed(const absl::Status& /*why*/) override { detach(); }
  void mismatched(const wire::MessageInfo& theirs) override {
    ticket_ = nullptr;
    mismatch_ = theirs;
  }
  void detach() {
    if (ticket_ != nullptr) channel_.cancel(std::exchange(ticket_, nullptr));
    if (message_ != nullptr) channel_.abandon(*std::exchange(message_, nullptr));
  }

  Channel& channel_;
  wire::MessageInfo info_;
  std::vector<std::byte> contents_, memory_;
  OutMessage* message_ = nullptr;
  Inbox::Ticket* ticket_ = nullptr;
  std::vector<Segment> came_;
  size_t received_ = 0;
  std::optional<wire::MessageInfo> mismatch_;
};

// Drives all ranks in the thread of the test, which has their locks as long as this exists: no rank
// does anything by itself.
class Drive {
 public:
  explicit Drive(World& world) : world_(world) {
    for (int r = 0; r < world.size(); ++r) {
      guards_.push_back(std::make_unique<Progress::Guard>(progress(r)));
    }
  }
  ~Drive() {
    for (int r = 0; r < world_.size(); ++r) progress(r).run_deferred();
  }
  Drive(const Drive&) = delete;
  Drive& operator=(const Drive&) = delete;

  // Rank r handles what is there.
  void round(int r) {
    Waiter never;
    progress(r).wait(*guards_[static_cast<size_t>(r)], never, now() + 20 * kMicrosecond);
  }
  void round() {
    for (int r = 0; r < world_.size(); ++r) round(r);
  }
  // Lets all ranks do what they would do without anything more from the test.
  void rest() {
    for (int i = 0; i < 40; ++i) round();
  }
  // Goes on until `is_done`. False: it is not after a minute.
  [[nodiscard]] bool until(absl::FunctionRef<bool()> is_done) {
    return until(is_done, [this] { round(); });
  }
  // The other ranks do nothing meanwhile.
  [[nodiscard]] bool until_at(int r, absl::FunctionRef<bool()> is_done) {
    return until(is_done, [this, r] { round(r); });
  }

  // Connects two ranks by both rails.
  [[nodiscard]] bool connect(int a, int b) {
    const Work work{.elements = 1, .tag = 1U << 30};
    PlayedRank from(world_.rank(a), b, ScheduleKind::kDirect, work);
    PlayedRank to(world_.rank(b), a, ScheduleKind::kDirect, work);
    from.set_contents(std::vector<float>(1));
    from.push(0, sizeof(float));
    if (!until([&] { return from.channel().up() == 3 && to.channel().up() == 3; })) return false;
    to.receive(sizeof(float));
    return until([&] { return to.received() > 0; });
  }

 private:
  Progress& progress(int r) { return world_.rank(r).endpoint->progress(); }
  static bool until(absl::FunctionRef<bool()> is_done, absl::FunctionRef<void()> round) {
    for (const Nanos end = now() + 60 * kSecond; !is_done(); round()) {
      if (now() > end) return false;
    }
    return true;
  }

  World& world_;
  std::vector<std::unique_ptr<Progress::Guard>> guards_;
};

}  // namespace nezha
