// SPDX-License-Identifier: Apache-2.0
// Carries out a course around a ring (course.h) on a slice.
//
// The ring works in segments: each is reduced and forwarded as it lands, on the rail that it came
// by. The course's window bounds how much each rank puts into circulation. So partial sums never
// take more scratch than the windows of all ranks, and no rank ever has to stop reading.
//
// In an allreduce on fast rails, a rank replaces what has come around by as much on the same rail.
// Each rail then carries what it can, and no rail's thread sends for another rail. In all other
// cases what a rank begins is cut over the rails by their rates.
#pragma once

#include <array>
#include <vector>

#include "collectives/engine.h"
#include "collectives/hosts/arrivals.h"
#include "collectives/hosts/course.h"
#include "common/recycled.h"

namespace nezha {

class Ring final : public Task, Receiver, Sender {
 public:
  Ring(const Group& group, const Slice& slice, TaskOwner& owner);
  ~Ring() override { detach(); }

  static std::vector<int> peers(int rank, int size) {
    return {(rank + 1) % size, (rank + size - 1) % size};
  }

  void start(const EnginePlan& plan);
  std::string describe() const override;
  bool has_slack() const override { return arrivals_.has_slack(left_to_receive(), now()); }
  Nanos rest() const override { return arrivals_.rest(left_to_receive(), now()); }

 private:
  // A place in the sequence of legs that the left neighbour sends.
  struct Place {
    const Leg& leg;
    size_t in_leg;  // bytes
  };

  // Receiver and Sender
  std::byte* place(uint64_t offset, size_t length) override;
  void landed(uint64_t offset, size_t length, Rail rail) override;
  bool digests(uint64_t offset, size_t length) const override;
  void digest(uint64_t offset, size_t length, std::byte* memory) override;
  void digested(uint64_t offset, size_t length, Rail rail) override;
  void released(uint64_t offset, size_t length) override;
  void settled() override;
  void failed(const absl::Status& why) override;
  void mismatched(const wire::MessageInfo& theirs) override;

  Place locate(uint64_t offset) const;
  // Forwarded bytes come after those that this rank begins with.
  uint64_t forward_offset(uint64_t offset) const { return course_.begun.length + offset; }
  bool has_neither() const { return to_send_ == 0 && receive_offsets_.back() == 0; }
  uint64_t left_to_receive() const { return receive_offsets_.back() - received_; }
  bool all_received() const { return left_to_receive() == 0; }
  bool count_landed(size_t length);
  absl::Status take_in(const Place& place, size_t length, std::byte* scratch) const;
  void pass_on(uint64_t offset, size_t length, Rail rail);
  void send_tokens();
  void begin();
  bool keeps_to(Rail rail);
  void replace(uint64_t length, Rail rail);
  void push_own(uint64_t length, Rail rail);
  void check_complete();
  void detach() override;

  const Group& group_;
  Slice slice_;
  size_t granule_;
  Reducer reducer_;
  Course course_;
  EnginePlan plan_;
  Channel* left_ = nullptr;
  Channel* right_ = nullptr;
  RecycledVector<uint64_t> receive_offsets_;  // each leg's place in the message
  RailMask kept_ = 0;         // the rails on which what comes around is replaced; 0: none
  uint64_t to_send_ = 0;      // bytes
  uint64_t to_forward_ = 0;   // bytes of `to_send_`
  uint64_t to_complete_ = 0;  // bytes received that are neither forwarded nor tokens
  uint64_t begun_ = 0, came_around_ = 0, received_ = 0, completed_ = 0;  // bytes
  size_t tokens_received_ = 0;
  Arrivals arrivals_;
  size_t tokens_sent_ = 0;
  bool settling_ = false;
  bool posted_ = false;
  absl::Status failure_;  // a reduction's error
  Inbox::Ticket* incoming_ = nullptr;
  OutMessage* outgoing_ = nullptr;
  // Sums, by where their operands are in the incoming message.
  RecycledMap<uint64_t, Buffer> scratch_;
  std::array<std::byte, 64> tokens_{};  // sent or received: only their number matters
};

}  // namespace nezha
