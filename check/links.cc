// SPDX-License-Identifier: Apache-2.0
#include "check/links.h"

#include <algorithm>
#include <array>
#include <exception>
#include <vector>

#include "common/clock.h"
#include "nezha/context.h"
#include "nezha/send_recv.h"

namespace nezha::check {
namespace {

constexpr size_t kPings = 50;
constexpr size_t kPingSize = 16;               // bytes
constexpr size_t kBurst = size_t{16} << 20;    // bytes
constexpr double kNanosToMicros = 1.0 / 1000;  // microseconds in a nanosecond

class Peer {
 public:
  Peer(std::shared_ptr<Context> context, int rank) : context_(std::move(context)), rank_(rank) {}

  void send(const std::vector<std::byte>& memory, size_t bytes) const {
    SendOptions options(context_);
    options.setDestination(rank_);
    options.setInput(memory.data(), bytes);
    nezha::send(options);
  }
  void receive(std::vector<std::byte>& memory, size_t bytes) const {
    RecvOptions options(context_);
    options.setSource(rank_);
    options.setOutput(memory.data(), bytes);
    nezha::recv(options);
  }
  // Sends a short message to the peer and gets one back. Returns how long that took.
  Nanos ask(std::vector<std::byte>& memory) const {
    const Nanos begin = now();
    send(memory, kPingSize);
    receive(memory, kPingSize);
    return now() - begin;
  }
  void answer(std::vector<std::byte>& memory) const {
    receive(memory, kPingSize);
    send(memory, kPingSize);
  }

 private:
  std::shared_ptr<Context> context_;
  int rank_;
};

double gbps(Nanos time) { return 8.0 * kBurst / static_cast<double>(std::max<Nanos>(time, 1)); }

// The first of the two bursts makes the memory known to the devices.
void measure(const Peer& peer, Path& path) {
  std::vector<std::byte> memory(kBurst);
  std::vector<Nanos> times;
  for (size_t i = 0; i < kPings; ++i) times.push_back(peer.ask(memory));
  std::nth_element(times.begin(), times.begin() + kPings / 2, times.end());
  path.round_trip_us = static_cast<double>(times[kPings / 2]) * kNanosToMicros;
  for (int i = 0; i < 2; ++i) {
    const Nanos begin = now();
    peer.send(memory, kBurst);
    peer.receive(memory, kPingSize);
    path.gbps_there = gbps(now() - begin);
  }
  for (int i = 0; i < 2; ++i) {
    const Nanos begin = now();
    peer.send(memory, kPingSize);
    peer.receive(memory, kBurst);
    path.gbps_back = gbps(now() - begin);
  }
}

void take_part(const Peer& peer) {
  std::vector<std::byte> memory(kBurst);
  for (size_t i = 0; i < kPings; ++i) peer.answer(memory);
  for (int i = 0; i < 2; ++i) {
    peer.receive(memory, kBurst);
    peer.send(memory, kPingSize);
  }
  for (int i = 0; i < 2; ++i) {
    peer.receive(memory, kPingSize);
    peer.send(memory, kBurst);
  }
}

}  // namespace

void measure_links(const std::shared_ptr<::gloo::rendezvous::Store>& store, const std::string& uri,
                   const std::string& ports, int place, std::chrono::milliseconds patience,
                   Path& path) {
  try {
    ContextOptions options;
    options.rank = place;
    options.size = 2;
    options.rails = {uri};
    options.ports = ports;
    options.timeout = patience;
    // Overrides what the environment says for a job with several rails.
    options.plan = Plan::kSlice;
    options.shares = {1};
    options.policy = BalancePolicy::kNone;
    const Peer peer(Context::create(store, options), 1 - place);
    if (place == 0) {
      measure(peer, path);
    } else {
      take_part(peer);
    }
  } catch (const std::exception& error) {
    path.error = error.what();
  }
}

}  // namespace nezha::check
