// SPDX-License-Identifier: Apache-2.0
// A pair, which is Gloo's name for the connection of two ranks of a context.
#pragma once

#include <gloo/transport/pair.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "interop/gloo/bound_buffer.h"
#include "interop/gloo/member.h"

namespace nezha::interop {

class Pair final : public ::gloo::transport::Pair {
 public:
  // Makes the pair with that rank. `timeout` returns the context's timeout.
  Pair(std::shared_ptr<Member> member, int rank,
       std::function<std::chrono::milliseconds()> timeout);
  ~Pair() override { member_->close(rank_); }

  const std::shared_ptr<Member>& member() const { return member_; }

  const ::gloo::transport::Address& address() const override { return member_->address(); }
  void connect(const std::vector<char>& bytes) override { member_->connect(rank_, bytes); }
  // Makes the pairs with this rank fail at the other ranks, and all collectives that need it.
  void close() override {
    member_->close(rank_);
    member_->leave_collectives();
  }
  // Overrides a virtual function in newer versions of Gloo.
  bool isConnected() { return member_->is_connected(rank_); }
  // Does nothing: as in all of nezha a thread that waits drives, and NEZHA_POLL says how long it
  // polls.
  void setSync(bool /*enable*/, bool /*busyPoll*/) override {}
  std::unique_ptr<::gloo::transport::Buffer> createSendBuffer(int slot, void* memory,
                                                              size_t bytes) override {
    return create(BoundBuffer::End::kSends, slot, memory, bytes);
  }
  std::unique_ptr<::gloo::transport::Buffer> createRecvBuffer(int slot, void* memory,
                                                              size_t bytes) override {
    return create(BoundBuffer::End::kReceives, slot, memory, bytes);
  }
  void send(::gloo::transport::UnboundBuffer* buffer, uint64_t slot, size_t offset,
            size_t bytes) override {
    buffer->send(rank_, slot, offset, bytes);
  }
  void recv(::gloo::transport::UnboundBuffer* buffer, uint64_t slot, size_t offset,
            size_t bytes) override {
    buffer->recv(rank_, slot, offset, bytes);
  }

 private:
  std::unique_ptr<BoundBuffer> create(BoundBuffer::End end, int slot, void* memory, size_t bytes);

  const std::shared_ptr<Member> member_;
  const int rank_;
  const std::function<std::chrono::milliseconds()> timeout_;
};

}  // namespace nezha::interop
