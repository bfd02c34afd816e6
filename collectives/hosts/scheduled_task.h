// SPDX-License-Identifier: Apache-2.0
// Carries out a schedule on a slice: it handles the messages, the scratch and the sums of all
// algorithms that go in steps.
//
// The slice is cut into rounds (a vector of blocks is a single round), and each round goes through
// the steps by itself: while one receives, another reduces. At most kWindow rounds are at work, so
// that partial sums take a few rounds of scratch instead of the size of the vector. The place of an
// element in the vector decides only which ranks add it up, so rounds and slices do not change its
// order of summation.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "collectives/engine.h"
#include "collectives/hosts/arrivals.h"
#include "collectives/hosts/rounds.h"
#include "collectives/hosts/schedule.h"
#include "common/recycled.h"

namespace nezha {

class ScheduledTask final : public Task {
 public:
  ScheduledTask(const Schedule& schedule, const Group& group, const Slice& slice, TaskOwner& owner);
  ~ScheduledTask() override { detach(); }

  void start(const EnginePlan& plan);
  std::string describe() const override;
  // A task of blocks has slack. The other collectives make sums that other ranks wait for.
  bool has_slack() const override {
    return slice_.operation.blocks != nullptr && pace_.has_slack(left_, now());
  }
  Nanos rest() const override { return pace_.rest(left_, now()); }

 private:
  struct Stage;

  // A transfer's message: the transfer's chunks in all rounds, one after the other.
  struct Message {
    ScheduledTask* task = nullptr;
    int peer = 0;
    Chunks chunks;
    const Rounds* rounds = nullptr;  // the rounds of the message's vector
    Channel* channel = nullptr;
    uint64_t total = 0;  // bytes
  };
  struct Incoming final : Message, Receiver {
    const Stage* stage = nullptr;
    size_t index = 0;  // the place in Round::arrivals
    uint64_t received = 0;
    bool complete = false;
    Inbox::Ticket* ticket = nullptr;

    void count_landed(size_t length);
    void take_in(uint64_t offset, size_t length);

    std::byte* place(uint64_t offset, size_t length) override;
    void landed(uint64_t offset, size_t length, Rail rail) override;
    bool digests(uint64_t offset, size_t length) const override;
    void digest(uint64_t offset, size_t length, std::byte* memory) override;
    void digested(uint64_t offset, size_t length, Rail rail) override;
    void failed(const absl::Status& why) override { task->fail(why); }
    void mismatched(const wire::MessageInfo& theirs) override;
  };
  struct Outgoing final : Message, Sender {
    OutMessage* message = nullptr;

    void released(uint64_t offset, size_t length) override;
    void settled() override;
    void failed(const absl::Status& why) override { task->fail(why); }
  };
  struct Stage {  // a step
    Step::Use use = Step::Use::kResult;
    absl::InlinedVector<Incoming, 1, RecyclingAllocator<Incoming>> incoming;
    absl::InlinedVector<Outgoing, 1, RecyclingAllocator<Outgoing>> outgoing;
  };

  struct Arrival {         // the state of an incoming message
    uint64_t missing = 0;  // bytes; for an empty message 1 until it arrives
    Buffer buffer;         // the operands of a sum
    absl::InlinedVector<Range, 2, RecyclingAllocator<Range>> digested;  // parts of the vector
  };
  struct Round {
    absl::InlinedVector<Arrival, 2, RecyclingAllocator<Arrival>> arrivals;
    bool begun = false;
    bool sent = false;               // the current step's messages are sent
    size_t stage = 0;                // the current step
    const std::byte* own = nullptr;  // what this rank has, from `own_offset` of the vector on
    size_t own_offset = 0;
    Buffer input_copy;
    uint64_t unreleased = 0;  // bytes that links may still read
  };

  void take_relay();
  void note_progress(size_t bytes);
  bool overwrites_what_it_sends() const;
  Round& round(size_t index);
  void begin(size_t index);
  void advance(size_t index);
  void proceed();
  void send(size_t index, Stage& stage);
  absl::Status combine(size_t index, const Stage& stage);
  absl::Status sum_rest(Round& round, const Stage& stage, const Range& whole) const;
  absl::Status sum(const Round& round, const Stage& stage, const Range& whole,
                   const Range& part) const;
  bool is_complete(const Round& round) const { return round.stage == stages_.size(); }
  void forget_if_done(size_t index);
  void settle();
  void check_settled();
  void fail(const absl::Status& why);
  void detach() override;

  static constexpr size_t kWindow = 4;  // rounds

  const Group& group_;
  Slice slice_;
  Reducer reducer_;
  EnginePlan plan_;
  Rounds rounds_;
  Rounds received_;  // the received vector's; equals `rounds_` except in an alltoall
  bool is_exchange_;
  Buffer relay_;                 // the output, if the caller's has no room for all of it
  std::byte* result_ = nullptr;  // this rank's block is copied there from `relay_`; null: no copy
  std::vector<Stage, RecyclingAllocator<Stage>> stages_;
  size_t sends_ = 0;     // outgoing messages, without those of an agreement
  size_t messages_ = 0;  // incoming messages
  uint64_t left_ = 0;    // bytes still to be received or released
  Arrivals pace_;        // the pace of the bytes in `left_`
  bool copies_input_ = false;
  bool started_ = false, settling_ = false;
  size_t begun_ = 0, completed_ = 0;  // rounds, each counted from the first one on
  RecycledMap<size_t, Round> live_;
  // Rounds with digests, each at its index modulo the number of entries. Digests read this without
  // the lock: `place` refuses the next round of an entry until the earlier one is complete.
  std::array<const Round*, 2 * kWindow> digesting_{};
};

}  // namespace nezha
