// SPDX-License-Identifier: Apache-2.0
// The transport context of nezha's device: one rank's pairs and buffers in a Gloo context.
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
  // Keeps the device alive. Throws as Member does.
  GlooContext(std::shared_ptr<::gloo::transport::Device> device, int own_rank, int ranks,
              const std::vector<std::string>& rails);
  ~GlooContext() override;

  std::unique_ptr<::gloo::transport::Pair>& createPair(int with) override;
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* memory,
                                                                        size_t bytes) override;

 private:
  // Returns a function that reads the current timeout, which Gloo sets without telling the context.
  // Once the context is gone, the function returns the timeout of when it was made.
  std::function<std::chrono::milliseconds()> timeout();

  const std::shared_ptr<::gloo::transport::Device> device_;
  const std::shared_ptr<Member> member_;
};

}  // namespace nezha::interop
