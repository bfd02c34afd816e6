// SPDX-License-Identifier: Apache-2.0
// Long messages on rails that have threads. Data that is digested without the lock is digested
// exactly once, whatever happens to links and messages meanwhile.
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/unit/transport/endpoint_fixture.h"

namespace nezha::testing {
namespace {

constexpr size_t kBytes = 8 << 20;

// Adds what it receives to its sum, without the lock where that is possible.
struct Adding final : Sender, Receiver {
  Host& host;
  Waiter waiter;
  std::vector<std::byte> out, in;
  std::vector<uint8_t> sum;
  std::chrono::microseconds digestion{0};
  std::atomic<bool> digesting{false};
  std::atomic<size_t> digests_done{0};
  size_t landed_bytes = 0;
  bool has_settled = false;
  OutMessage* message = nullptr;
  Inbox::Ticket* ticket = nullptr;
  absl::Status failure;

  explicit Adding(Host& its_host) : host(its_host), in(kBytes), sum(kBytes) {}

  void start(Channel& channel, uint64_t seed) {
    out = content(kBytes, seed);
    ticket = channel.post(info(1, kBytes), this);
    message = channel.open(info(1, kBytes), Route(), this);
    channel.push(*message, 0, out.data(), kBytes);
    channel.settle(*message);
  }
  void add(uint64_t offset, size_t length) {
    for (size_t i = offset; i < offset + length; ++i) sum[i] += static_cast<uint8_t>(in[i]);
  }
  void count(size_t length) {
    landed_bytes += length;
    if (landed_bytes == kBytes) ticket = nullptr;
    if (landed_bytes == kBytes && has_settled) host.endpoint->progress().finish(waiter);
  }

  std::byte* place(uint64_t offset, size_t) override { return in.data() + offset; }
  bool digests(uint64_t, size_t) const override { return true; }
  void digest(uint64_t offset, size_t length, std::byte*) override {
    digesting = true;
    std::this_thread::sleep_for(digestion);
    add(offset, length);
    ++digests_done;
    digesting = false;
  }
  void digested(uint64_t, size_t length, Rail) override { count(length); }
  void landed(uint64_t offset, size_t length, Rail) override {
    add(offset, length);
    count(length);
  }
  void released(uint64_t, size_t) override {}
  void settled() override {
    has_settled = true;
    message = nullptr;
    if (landed_bytes == kBytes) host.endpoint->progress().finish(waiter);
  }
  void mismatched(const wire::MessageInfo&) override { failed(absl::InternalError("mismatch")); }
  void failed(const absl::Status& why) override {
    failure = why;
    message = nullptr;
    ticket = nullptr;
    host.endpoint->progress().finish(waiter);
  }
};

class RailThreadsTest : public ::testing::Test {
 protected:
  RailThreadsTest() {
    for (Host& host : hosts_) {
      const Progress::Guard guard(host.endpoint->progress());
      host.endpoint->set_spare_threads(2);
    }
  }
  ~RailThreadsTest() override {
    for (const size_t self : {size_t{0}, size_t{1}}) {
      const Progress::Guard guard(hosts_[self].endpoint->progress());
      Adding& each = adding_[self];
      if (each.ticket != nullptr) channel(self).cancel(each.ticket);
      if (each.message != nullptr) channel(self).abandon(*each.message);
    }
  }
  Channel& channel(size_t self) { return hosts_[self].channel_to(hosts_[1 - self]); }
  // Both hosts exchange messages, each driven by a thread, while `meanwhile` runs.
  template <typename Meanwhile>
  void exchange(Meanwhile meanwhile) {
    std::array<std::thread, 2> threads;
    for (const size_t self : {size_t{0}, size_t{1}}) {
      threads[self] = std::thread([this, self] {
        Progress& progress = hosts_[self].endpoint->progress();
        Progress::Guard guard(progress);
        adding_[self].start(channel(self), self);
        EXPECT_TRUE(progress.wait(guard, adding_[self].waiter, now() + 60 * kSecond));
        ++done_;
      });
    }
    meanwhile();
    for (std::thread& thread : threads) thread.join();
  }
  void expect_sums() {
    for (const size_t self : {size_t{0}, size_t{1}}) {
      EXPECT_TRUE(adding_[self].failure.ok()) << adding_[self].failure;
      const std::vector<std::byte> expected = content(kBytes, 1 - self);
      size_t wrong = 0;
      for (size_t i = 0; i < kBytes; ++i)
        wrong += adding_[self].sum[i] != static_cast<uint8_t>(expected[i]);
      EXPECT_EQ(wrong, 0u) << "bytes that were added twice or never";
    }
  }

  std::array<Host, 2> hosts_;
  std::array<Adding, 2> adding_{Adding(hosts_[0]), Adding(hosts_[1])};
  std::atomic<int> done_{0};
};

TEST_F(RailThreadsTest, LongMessagesAreDigestedWithoutTheLock) {
  exchange([] {});
  expect_sums();
  for (const Adding& each : adding_) EXPECT_GT(each.digests_done, 0u);
}

// A segment whose link dies during its digestion counts as received; a retransmission is dropped.
TEST_F(RailThreadsTest, WhatIsDigestedAsItsLinkDiesIsNotDigestedAgain) {
  for (Adding& each : adding_) each.digestion = std::chrono::milliseconds(2);
  exchange([this] {
    for (Rail rail = 0; done_ < 2; rail = 1 - rail) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const Progress::Guard guard(hosts_[0].endpoint->progress());
      channel(0).on_carrier(rail, false);
      channel(0).on_carrier(rail, true);
    }
  });
  expect_sums();
}

TEST_F(RailThreadsTest, NothingIsDigestedOnceTheMessageIsCancelled) {
  adding_[0].digestion = std::chrono::milliseconds(20);
  std::thread other([this] {
    const Progress::Guard guard(hosts_[1].endpoint->progress());
    adding_[1].start(channel(1), 1);
  });
  {
    Progress::Guard guard(hosts_[0].endpoint->progress());
    adding_[0].start(channel(0), 0);
  }
  other.join();
  const Nanos deadline = now() + 60 * kSecond;
  while (!adding_[0].digesting && now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(adding_[0].digesting);
  const Progress::Guard guard(hosts_[0].endpoint->progress());
  channel(0).cancel(std::exchange(adding_[0].ticket, nullptr));
  EXPECT_FALSE(adding_[0].digesting);
  const size_t digests = adding_[0].digests_done;
  if (adding_[0].message != nullptr)
    channel(0).abandon(*std::exchange(adding_[0].message, nullptr));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(adding_[0].digests_done, digests);
}

}  // namespace
}  // namespace nezha::testing
