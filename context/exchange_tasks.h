// SPDX-License-Identifier: Apache-2.0
// The tasks of sends and receives. All methods are called under Progress's lock.
//
// A receive from several ranks posts a ticket in the inbox of each. The tickets of an inbox are in
// the order of the calls, so each inbox gives its next message to the receive that was called
// first. The first inbox that has a message for a receive decides, and the receive withdraws its
// other tickets.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "collectives/engine.h"
#include "common/hash_map.h"
#include "context/exchange.h"

namespace nezha {

class SendTask final : public Task, Sender {
 public:
  SendTask(const Exchange& exchange, const Group& group, Loopback& loopback, TaskOwner& owner)
      : Task(owner), exchange_(exchange), group_(group), loopback_(loopback) {}
  ~SendTask() override { detach(); }

  // Returns an error if the peer has closed the context. May finish.
  absl::Status start(RailMask rails);
  std::string describe() const override;

  // The loopback calls these. The message was taken, or cannot be taken.
  const Exchange& exchange() const { return exchange_; }
  void taken();
  void failed(const absl::Status& why) override;

 private:
  void released(uint64_t /*offset*/, size_t /*length*/) override {}
  void settled() override;
  void detach() override;

  const Exchange& exchange_;
  const Group& group_;
  Loopback& loopback_;
  Channel* channel_ = nullptr;
  OutMessage* message_ = nullptr;
  bool is_in_loopback_ = false;
};

class ReceiveTask final : public Task {
 public:
  ReceiveTask(Exchange& exchange, const Group& group, Loopback& loopback, TaskOwner& owner);
  ~ReceiveTask() override { detach(); }

  void start();  // may finish
  std::string describe() const override;

  // The loopback calls these. This rank has sent itself a message, or the message cannot be taken.
  const Exchange& exchange() const { return exchange_; }
  void take(const std::byte* data, size_t bytes);
  void fail(const absl::Status& why);

 private:
  // The receive's request for a message of one rank.
  struct Claim final : Receiver {
    ReceiveTask* task = nullptr;
    int source = 0;
    Channel* channel = nullptr;       // null: this rank's own messages
    Inbox::Ticket* ticket = nullptr;  // null also while it is being posted
    bool is_open = true;              // a message may still come, or is coming

    bool accepts(const wire::MessageInfo& theirs) override;
    std::byte* place(uint64_t offset, size_t length) override;
    void landed(uint64_t offset, size_t length, Rail rail) override;
    void failed(const absl::Status& why) override;
    void mismatched(const wire::MessageInfo& theirs) override;
    void withdraw();
  };

  void post(Claim& claim);
  void match(Claim& claim, size_t bytes);
  void detach() override;

  Exchange& exchange_;
  const Group& group_;
  Loopback& loopback_;
  std::vector<Claim> claims_;  // one for each source
  Claim* match_ = nullptr;
  uint64_t received_ = 0;  // bytes
};

// The messages that this rank sends itself, which no channel carries. A send waits here for its
// receive, or a receive for its send.
class Loopback {
 public:
  void add(SendTask& send);
  void add(ReceiveTask& receive);
  void remove(const SendTask& send);
  void remove(const ReceiveTask& receive);

 private:
  // The operations of one tag, in the order of the calls. One of the two lists is empty.
  struct Queue {
    std::deque<SendTask*> sends;
    std::deque<ReceiveTask*> receives;
  };
  // Takes the first operation that waits out of its list. Returns null if none waits.
  template <typename T>
  T* take_first(uint64_t tag, std::deque<T*> Queue::*its);
  template <typename T>
  void remove(const T& task, std::deque<T*> Queue::*its);
  static void pass(SendTask& send, ReceiveTask& receive);

  HashMap<uint64_t, Queue> queues_;  // keyed by tag
};

}  // namespace nezha
