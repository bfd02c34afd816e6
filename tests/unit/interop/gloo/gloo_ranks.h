// SPDX-License-Identifier: Apache-2.0
// The ranks of a Gloo context on nezha's device: threads, connected by two rails of the loopback
// interface.
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/unbound_buffer.h>

#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "nezha/gloo.h"

namespace nezha {

class GlooRanks : public ::testing::Test {
 protected:
  using GlooContext = ::gloo::rendezvous::Context;

  static std::shared_ptr<::gloo::transport::Device> two_rails() {
    GlooDeviceOptions options;
    options.rails = {"tcp:lo?rail=a", "tcp:lo?rail=b"};
    return glooDevice(options);
  }
  // Runs `work` as each of these ranks. Contexts are destroyed after all ranks are done, unless
  // `work` destroys its own.
  static void run(int ranks, const std::function<void(std::shared_ptr<GlooContext>&)>& work) {
    ::gloo::rendezvous::HashStore store;
    std::barrier all_done(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        auto device = two_rails();
        auto context = std::make_shared<GlooContext>(rank, ranks);
        context->setTimeout(std::chrono::seconds(20));
        context->connectFullMesh(store, device);
        device.reset();
        work(context);
        all_done.arrive_and_wait();
      });
    }
    for (auto& thread : threads) thread.join();
  }

  // Sends a word to another rank, and waits until that rank has asked for it.
  static void send(const std::shared_ptr<GlooContext>& context, int rank, uint64_t slot,
                   const std::string& word) {
    std::string copy = word;
    const auto buffer = context->createUnboundBuffer(copy.data(), copy.size());
    buffer->send(rank, slot);
    buffer->waitSend();
  }

  static std::string receive(const std::shared_ptr<GlooContext>& context, int rank, uint64_t slot,
                             size_t length) {
    std::string word(length, '.');
    const auto buffer = context->createUnboundBuffer(word.data(), word.size());
    buffer->recv(rank, slot);
    buffer->waitRecv();
    return word;
  }
};

}  // namespace nezha
