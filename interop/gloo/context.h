// SPDX-License-Identifier: Apache-2.0
// A Gloo context's ranks, as the transport below it sees them.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "interop/gloo/member.h"

namespace nezha::interop {

class GlooContext final : public ::gloo::transport::Context,
                          public std::enable_shared_from_this<GlooContext> {
 public:
  // Keeps the device. Throws as Member does.
  GlooContext(std::shared_ptr<::gloo::transport::Device> device, int own_rank, int ranks,
              const std::vector<std::string>& rails);
  ~GlooContext() override;

  std::unique_ptr<::gloo::transport::Pair>& createPair(int with) override;
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* memory,
                                                                        size_t bytes) override;

 private:
  // Asks for the timeout, which Gloo sets without a word, as long as the context lives.
  std::function<std::chrono::milliseconds()> timeout();

  const std::shared_ptr<::gloo::transport::Device> device_;
  const std::shared_ptr<Member> member_;
};

}  // namespace nezha::interop
