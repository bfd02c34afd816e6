// SPDX-License-Identifier: Apache-2.0
// Memory at one end of a pair that a slot binds to memory at the other end, as Gloo's older
// algorithms use it. The sender says where in the receiver's memory a message goes.
#pragma once

#include <gloo/transport/buffer.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "interop/gloo/member.h"
#include "transport/held_memory.h"

namespace nezha::interop {

class BoundBuffer final : public ::gloo::transport::Buffer {
 public:
  enum class End { kSends, kReceives };

  // `timeout` returns the context's timeout.
  BoundBuffer(End end, std::shared_ptr<Member> member, int rank, int slot, void* memory,
              size_t bytes, std::function<std::chrono::milliseconds()> timeout);
  ~BoundBuffer() override;

  void send(size_t offset, size_t bytes, size_t place) override;
  void waitRecv() override { wait(End::kReceives); }
  void waitSend() override;

 private:
  void wait(End end);

  const Hold hold_;
  const End end_;
  const std::shared_ptr<Member> member_;
  const int rank_;
  const std::function<std::chrono::milliseconds()> timeout_;
  std::unique_ptr<Completions> completions_;
  std::atomic<int64_t> unwaited_{0};  // sends for which waitSend() was not called yet
};

}  // namespace nezha::interop
