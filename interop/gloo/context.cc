// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/context.h"

#include <utility>

#include "interop/gloo/pair.h"
#include "interop/gloo/unbound_buffer.h"

namespace nezha::interop {

GlooContext::GlooContext(std::shared_ptr<::gloo::transport::Device> device, int own_rank, int ranks,
                         const std::vector<std::string>& rails)
    : ::gloo::transport::Context(own_rank, ranks),
      device_(std::move(device)),
      member_(std::make_shared<Member>(own_rank, ranks, rails)) {}

// Destroys the pairs first: the base class would destroy them after this class's members.
GlooContext::~GlooContext() { pairs_.clear(); }

std::function<std::chrono::milliseconds()> GlooContext::timeout() {
  return [weak = weak_from_this(), last = getTimeout()] {
    const auto context = weak.lock();
    return context == nullptr ? last : context->getTimeout();
  };
}

std::unique_ptr<::gloo::transport::Pair>& GlooContext::createPair(int with) {
  auto& pair = pairs_[static_cast<size_t>(with)];
  pair = std::make_unique<Pair>(member_, with, timeout());
  return pair;
}

std::unique_ptr<::gloo::transport::UnboundBuffer> GlooContext::createUnboundBuffer(void* memory,
                                                                                   size_t bytes) {
  return std::make_unique<UnboundBuffer>(shared_from_this(), member_, memory, bytes);
}

}  // namespace nezha::interop
