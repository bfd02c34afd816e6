// SPDX-License-Identifier: Apache-2.0
// An alltoall in ceil(log2(n)) steps, for small blocks. (J. Bruck et al.: Efficient algorithms for
// all-to-all communications in multiport message-passing systems, 1997.)
//
// The block that rank r has for rank r+d travels the distance d by its binary digits, the lowest
// first: in step k each rank sends to rank r+2^k all blocks whose distance has the digit 2^k, in
// one message, and receives as many. So a block travels by way of other ranks, and each step sends
// half of all blocks.
#pragma once

#include <vector>

#include "collectives/engine.h"

namespace nezha {

// The blocks have equal lengths. It takes scratch as large as the vector, and half as much for each
// message that is under way to or from this rank.
class BruckAlltoall final : public Task {
 public:
  BruckAlltoall(const Group& group, const Slice& slice, TaskOwner& owner);
  ~BruckAlltoall() override { detach(); }

  static std::vector<int> peers(int rank, int size);

  void start(const EnginePlan& plan);
  std::string describe() const override;

 private:
  struct Step final : Sender, Receiver {
    BruckAlltoall* task = nullptr;
    int digit = 0;  // 2^k
    int right = 0;  // peers
    int left = 0;
    size_t bytes = 0;  // a message's
    Buffer sent;
    Buffer arrived;
    uint64_t received = 0;  // bytes
    bool is_sent = false;   // pushed
    bool is_complete = false;
    OutMessage* outgoing = nullptr;
    Inbox::Ticket* incoming = nullptr;

    std::byte* place(uint64_t offset, size_t length) override;
    void landed(uint64_t offset, size_t length, Rail rail) override;
    void mismatched(const wire::MessageInfo& theirs) override;
    void released(uint64_t /*offset*/, size_t /*length*/) override {}
    void settled() override;
    void failed(const absl::Status& why) override { task->fail(why); }
  };

  Channel& channel(int rank) const { return *group_.channels[static_cast<size_t>(rank)]; }
  // Returns the distances with that digit, in the order in which their blocks are in the message.
  std::vector<int> distances(int digit) const;
  void advance();
  void pack(Step& step);
  void unpack(Step& step);
  void finish_if_settled();
  void fail(const absl::Status& why);
  void detach() override;

  const Group& group_;
  Slice slice_;
  EnginePlan plan_;
  size_t block_ = 0;  // bytes
  Buffer transit_;    // blocks that are on their way to other ranks, by distance
  std::vector<Step> steps_;
  size_t step_ = 0;  // the current one
  bool is_started_ = false;
};

}  // namespace nezha
