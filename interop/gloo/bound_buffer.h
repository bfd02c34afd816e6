// SPDX-License-Identifier: Apache-2.0
// Memory at one end of a pair that is bound to memory at the other end by a slot, as Gloo's older
// algorithms use it: the sender says where in the receiver's memory a message goes.
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

  // `timeout` is asked for the context's timeout.
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
  std::atomic<int64_t> unwaited_{0};  // sends
};

}  // namespace nezha::interop
