// SPDX-License-Identifier: Apache-2.0
// Memory that a user sends from, or receives into, any rank of a Gloo context.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "interop/gloo/member.h"
#include "transport/held_memory.h"

namespace nezha::interop {

class UnboundBuffer final : public ::gloo::transport::UnboundBuffer {
 public:
  // Keeps the context alive, because its destructor closes the pairs. A wait without a timeout of
  // its own has the context's.
  UnboundBuffer(std::shared_ptr<::gloo::transport::Context> context, std::shared_ptr<Member> member,
                void* memory, size_t bytes);
  ~UnboundBuffer() override;

  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override;
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override;
  void abortWaitRecv() override { member_->abort_wait(*receives_); }
  void abortWaitSend() override { member_->abort_wait(*sends_); }
  void send(int rank, uint64_t slot, size_t offset, size_t bytes) override;
  void recv(int rank, uint64_t slot, size_t offset, size_t bytes) override;
  void recv(std::vector<int> ranks, uint64_t slot, size_t offset, size_t bytes) override;

 private:
  bool wait(Completions& completions, int* rank, std::chrono::milliseconds timeout);
  size_t checked_length(size_t offset, size_t bytes) const;
  std::byte* at(size_t offset) const { return static_cast<std::byte*>(ptr) + offset; }

  const Hold hold_;
  const std::shared_ptr<::gloo::transport::Context> context_;
  const std::shared_ptr<Member> member_;
  std::unique_ptr<Completions> sends_, receives_;
};

}  // namespace nezha::interop
