// SPDX-License-Identifier: Apache-2.0
// What tests of endpoints share: processes that use real sockets on loopback, and messages between
// them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "transport/endpoint.h"
#include "transport/tcp/device.h"

namespace nezha::testing {

constexpr UniqueId kJob{11, 22};

struct Listener final : JobListener {
  std::vector<wire::Abort> aborts;
  void on_abort(const wire::Abort& abort) override { aborts.push_back(abort); }
  void on_roll_call(const wire::RollCall&) override {}
  void on_failed(const absl::Status&) override {}
};

// A process with two devices on lo.
struct Host {
  Listener listener;  // the endpoint's thread calls it until the endpoint is gone
  std::shared_ptr<Endpoint> endpoint;
  std::map<std::string, std::string> addresses;
  std::map<std::string, std::string> peer_names;  // the rails' names at the peer, if they differ

  explicit Host(const std::vector<std::string>& rails = {"a", "b"}, UniqueId job = kJob) {
    endpoint = *Endpoint::create();
    Progress::Guard guard(endpoint->progress());
    for (const std::string& name : rails) {
      const auto rail = endpoint->open_device(
          "tcp:lo?rail=" + name,
          [&](Progress& progress, Acceptor& acceptor,
              Rail number) -> absl::StatusOr<std::unique_ptr<Device>> {
            tcp::DeviceOptions options;
            options.interface = "lo";
            options.rail = name;
            auto device = tcp::TcpDevice::create(progress, acceptor, number, options);
            if (!device.ok()) return device.status();
            return std::unique_ptr<Device>(*std::move(device));
          });
      EXPECT_TRUE(rail.ok()) << rail.status();
      const Device& device = *endpoint->device(*rail);
      addresses[device.name()] = device.address();
    }
    EXPECT_TRUE(endpoint->join(job, &listener).ok());
  }
  // The abort may arrive by another link than later frames, and again by each link that comes up.
  std::vector<wire::Abort> wait_for_abort() {
    Progress::Guard guard(endpoint->progress());
    for (int i = 0; i < 10'000 && listener.aborts.empty(); ++i) {
      Waiter tick;
      endpoint->progress().wait(guard, tick, now() + kMillisecond);
    }
    return listener.aborts;
  }
  Channel& channel_to(const Host& peer, UniqueId job = kJob) {
    Channel& channel = endpoint->channel(peer.endpoint->process());
    if (peer_names.empty()) {
      channel.set_peer("the peer", job, peer.addresses);
      return channel;
    }
    std::map<std::string, std::string> by_name_here;
    for (const auto& [here, there] : peer_names) by_name_here[here] = peer.addresses.at(there);
    channel.set_peer("the peer", job, by_name_here, peer_names);
    return channel;
  }
};

inline wire::MessageInfo info(uint64_t tag, uint64_t total, UniqueId job = kJob) {
  wire::MessageInfo result;
  result.context = job.low;
  result.tag = tag;
  result.total = total;
  return result;
}

// Sends one message, receives one, and waits for both.
struct Transfer final : Sender, Receiver {
  Progress& progress;
  Waiter waiter;
  std::vector<std::byte> out, in;
  uint64_t landed_bytes = 0;
  bool receives = false, sends = false;
  OutMessage* message = nullptr;
  Inbox::Ticket* ticket = nullptr;
  absl::Status failure;

  explicit Transfer(Progress& its_progress) : progress(its_progress) {}
  void send(Channel& channel, uint64_t tag, size_t bytes, uint64_t seed) {
    out.resize(bytes);
    std::mt19937_64 random(seed);
    for (auto& byte : out) byte = static_cast<std::byte>(random());
    sends = true;
    message = channel.open(info(tag, bytes), Route(), this);
    channel.push(*message, 0, out.data(), bytes);
    channel.settle(*message);
  }
  void receive(Channel& channel, uint64_t tag, size_t bytes, UniqueId job = kJob) {
    in.resize(bytes);
    receives = true;
    Inbox::Ticket* posted = channel.post(info(tag, bytes, job), this);
    if (receives) ticket = posted;
  }
  void end() {
    if (!sends && !receives) progress.finish(waiter);
  }
  void released(uint64_t, size_t) override {}
  void settled() override {
    sends = false;
    message = nullptr;
    end();
  }
  std::byte* place(uint64_t offset, size_t) override { return in.data() + offset; }
  void landed(uint64_t, size_t length, Rail) override {
    landed_bytes += length;
    if (landed_bytes < in.size()) return;
    receives = false;
    ticket = nullptr;
    end();
  }
  void mismatched(const wire::MessageInfo&) override { failed(absl::InternalError("mismatch")); }
  void failed(const absl::Status& why) override {
    failure = why;
    message = nullptr;
    ticket = nullptr;
    progress.finish(waiter);
  }
};

inline std::vector<std::byte> content(size_t bytes, uint64_t seed) {
  std::vector<std::byte> result(bytes);
  std::mt19937_64 random(seed);
  for (auto& byte : result) byte = static_cast<std::byte>(random());
  return result;
}

// Both hosts send `bytes` to each other at the same time, and each drives its own progress.
inline void exchange(Host& one, Host& two, uint64_t tag, size_t bytes) {
  std::array<Host*, 2> hosts{&one, &two};
  std::vector<std::thread> threads;
  for (const size_t self : {size_t{0}, size_t{1}}) {
    threads.emplace_back([&, self] {
      Host& host = *hosts[self];
      Progress& progress = host.endpoint->progress();
      Transfer transfer(progress);
      Progress::Guard guard(progress);
      Channel& channel = host.channel_to(*hosts[1 - self]);
      transfer.receive(channel, tag, bytes);
      transfer.send(channel, tag, bytes, 2 * tag + self);
      const bool done = progress.wait(guard, transfer.waiter, now() + 60 * kSecond);
      EXPECT_TRUE(done);
      EXPECT_TRUE(transfer.failure.ok()) << transfer.failure;
      EXPECT_EQ(transfer.in, content(bytes, 2 * tag + 1 - self));
      if (!done && transfer.ticket != nullptr) channel.cancel(transfer.ticket);
      if (!done && transfer.message != nullptr) channel.abandon(*transfer.message);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace nezha::testing
