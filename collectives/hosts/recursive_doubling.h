// Recursive doubling: log2(n) exchanges of the whole vector, for small ones.
//
// With a power of two of ranks, at level k rank r exchanges its partial result with rank r XOR 2^k
// and both add the two. Ranks beyond the largest power of two p fold in first: rank p+i sends its
// input to rank i, and gets the result back at the end. Both partners add the lower rank's operand
// first, so that all get the same bits. An average is divided at the last level, by all of them.
// (R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in
// MPICH, section 4.4.)
#pragma once

#include <memory>
#include <vector>

#include "collectives/engine.h"

namespace nezha {

class RecursiveDoubling final : public Task {
 public:
  RecursiveDoubling(const Group& group, const Slice& slice, TaskOwner& owner);
  ~RecursiveDoubling() override { detach(); }

  static std::vector<int> peers(int rank, int size);

  void start(const EnginePlan& plan);
  std::string describe() const override;

 private:
  // What happens with one peer: it gets what this rank has, or sends what it has, or both. What it
  // sends is added, or, at a rank that was folded in, is the result.
  struct Exchange final : Receiver, Sender {
    RecursiveDoubling* task = nullptr;
    int peer = 0;
    bool sends = false;
    bool receives = false;
    bool is_result = false;
    Channel* channel = nullptr;
    Buffer buffer;  // what was received, and then the sum of it and what this rank had
    uint64_t received = 0;
    bool complete = false;
    bool sent = false;
    Inbox::Ticket* incoming = nullptr;
    OutMessage* outgoing = nullptr;

    std::byte* place(uint64_t offset, size_t length) override;
    void landed(uint64_t offset, size_t length, Rail rail) override;
    void released(uint64_t, size_t) override {}
    void settled() override;
    void failed(const absl::Status& why) override;
    void mismatched(const wire::MessageInfo& theirs) override;
  };

  void add_exchange(int peer, bool sends, bool receives, bool is_result = false);
  void advance();
  void send(Exchange& exchange);
  absl::Status combine(Exchange& exchange);
  void fail(const absl::Status& why);
  void check_complete();
  void detach() override;

  const Group& group_;
  Slice slice_;
  Range range_;  // of the vector
  Reducer reducer_;
  EnginePlan plan_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
  size_t next_ = 0;                     // exchange
  const std::byte* current_ = nullptr;  // what this rank has so far
  Buffer input_copy_;
  bool started_ = false;
};

}  // namespace nezha
