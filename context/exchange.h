// SPDX-License-Identifier: Apache-2.0
// A send or a receive: with whom, by which tag, and where its bytes are.
//
// An exchange is the engine of its own operation, so the operation runs as a collective does: with
// a deadline, a handle, and a task that the context can fence. Its message goes by the same
// channels, but by no plan, because only the ranks of the exchange know of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/engine.h"

namespace nezha {

class Loopback;

// Tags of sends and receives are below this.
constexpr uint64_t kEndOfExchangeTags = uint64_t{1} << 62;

class Exchange final : public Engine {
 public:
  struct Terms {
    bool is_send = true;
    int rank = 0;            // this rank
    std::vector<int> peers;  // the destination, or the sources; may include this rank
    bool is_from_any = false;
    uint64_t tag = 0;
    const std::byte* input = nullptr;  // a send's
    std::byte* output = nullptr;       // a receive's
    size_t bytes = 0;
    bool may_be_shorter = false;  // a receive takes messages of fewer bytes than `bytes`, too
  };
  // Messages to this rank itself go through `loopback`.
  Exchange(Terms terms, Loopback& loopback) : terms_(std::move(terms)), loopback_(loopback) {}

  const Terms& terms() const { return terms_; }
  // Returns the name for errors, such as "send to rank 3 (tag 7, 400 bytes)".
  std::string name() const;
  std::vector<int> others() const;  // the peers other than this rank
  // Returns the message's name, and the properties that both ends must agree on.
  wire::MessageInfo info(uint64_t context) const;
  // Returns whether a receive takes a message of that size.
  bool takes(uint64_t bytes) const {
    return terms_.may_be_shorter ? bytes <= terms_.bytes : bytes == terms_.bytes;
  }

  // Returns the rank that a receive's message has come from, or is coming from; -1 if there is none
  // yet.
  int source() const { return source_; }
  void set_source(int rank) { source_ = rank; }
  // Returns the size of the message that a receive has taken, or is taking; 0 if there is none yet.
  size_t received_bytes() const { return received_bytes_; }
  void set_received_bytes(size_t bytes) { received_bytes_ = bytes; }

  std::vector<int> peers(const Group& group, const Operation& operation,
                         const EnginePlan& plan) const override;
  absl::StatusOr<std::unique_ptr<Task>> start(const Group& group, const Slice& slice,
                                              const EnginePlan& plan, TaskOwner& owner) override;

 private:
  const Terms terms_;
  Loopback& loopback_;
  int source_ = -1;
  size_t received_bytes_ = 0;
};

// Returns a text such as "rank 2", "ranks 1, 2 and 5", or "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 24
// others".
std::string names_of(const std::vector<int>& ranks);

}  // namespace nezha
