// SPDX-License-Identifier: Apache-2.0
// The lifetimes of contexts, devices and buffers, and what they share.
#include <gloo/allreduce.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>

#include <chrono>

#include "cluster/gloo/cases.h"
#include "cluster/gloo/data.h"
#include "cluster/gloo/device.h"
#include "cluster/gloo/memory.h"

namespace nezha::gloo_cases {
namespace {

using std::chrono::milliseconds;
using Contexts = std::vector<std::shared_ptr<gloo::Context>>;

constexpr size_t kBytes = 1000;

// Each rank sends a message to the next.
void shift(Rank& rank, const std::shared_ptr<gloo::Context>& context) {
  const uint32_t tag = rank.tag();
  Memory in(context, kBytes);
  Memory out(context, kBytes, rank.values<uint8_t>(tag, rank.rank));
  in->recv(rank.previous(), tag);
  out->send(rank.next(), tag);
  in->waitRecv();
  out->waitSend();
  in.check_part(0, kBytes, rank.values<uint8_t>(tag, rank.previous()));
}

// Messages with the same slot in several contexts do not mix.
void exchange_by_all(Rank& rank, const Contexts& contexts) {
  const uint32_t tag = rank.tag();
  std::vector<std::unique_ptr<Memory>> sent;
  for (size_t i = 0; i < contexts.size(); ++i) {
    const auto data = rank.values<uint8_t>(tag, rank.rank * 100 + static_cast<int>(i));
    sent.push_back(std::make_unique<Memory>(contexts[i], kBytes, data));
    (*sent.back())->send(rank.next(), 5);
  }
  for (size_t i = contexts.size(); i-- > 0;) {
    Memory in(contexts[i], kBytes);
    in->recv(rank.previous(), 5);
    in->waitRecv();
    in.check_part(0, kBytes,
                  rank.values<uint8_t>(tag, rank.previous() * 100 + static_cast<int>(i)));
  }
  for (auto& out : sent) (*out)->waitSend();
}

void several_of_a_device(Rank& rank) {
  Contexts contexts;
  for (int i = 0; i < 4; ++i) contexts.push_back(rank.connect());
  exchange_by_all(rank, contexts);
}

void several_devices(Rank& rank) {
  Contexts contexts;
  for (int i = 0; i < 3; ++i) {
    auto device = make_device(rank.options);
    contexts.push_back(rank.connect(rank.options.timeout, device));
  }
  exchange_by_all(rank, contexts);
}

// The device lives as long as the last context that holds it.
void device_is_held_by_context(Rank& rank) {
  auto device = make_device(rank.options);
  const auto before = device.use_count();
  const auto context = rank.connect(rank.options.timeout, device);
  rank.note(std::to_string(device.use_count() - before) + " more references");
  device.reset();
  shift(rank, context);
}

void again_and_again(Rank& rank) {
  for (int i = 0; i < 5; ++i) shift(rank, rank.connect());
}

void again_after_failure(Rank& rank) {
  for (int i = 0; i < 2; ++i) {
    const auto context = rank.connect();
    Memory memory(context, 8);
    memory->recv(rank.next(), 3);
    rank.note(rank.rank == 0 ? outcome_of([&] { return memory->waitRecv(milliseconds(100)); })
                             : "");
    rank.meet();
  }
  shift(rank, rank.connect());
}

// A buffer keeps what it needs of its context.
void buffer_outlives_context(Rank& rank) {
  const uint32_t tag = rank.tag();
  std::unique_ptr<Memory> in;
  std::unique_ptr<Memory> out;
  {
    auto device = make_device(rank.options);
    const auto context = rank.connect(rank.options.timeout, device);
    in = std::make_unique<Memory>(context, kBytes);
    out = std::make_unique<Memory>(context, kBytes, rank.values<uint8_t>(tag, rank.rank));
    rank.release();
  }
  (*in)->recv(rank.previous(), tag);
  (*out)->send(rank.next(), tag);
  (*in)->waitRecv();
  (*out)->waitSend();
  in->check_part(0, kBytes, rank.values<uint8_t>(tag, rank.previous()));
  rank.meet();
}

// Creates contexts through the pairs of another context, with one device or with a device for each.
void factory(Rank& rank, bool own_devices) {
  const auto backing = rank.connect();
  gloo::rendezvous::ContextFactory factory(backing);
  Contexts contexts;
  for (int i = 0; i < 4; ++i) {
    auto device = own_devices ? make_device(rank.options) : rank.device();
    contexts.push_back(factory.makeContext(device));
    gloo::BarrierAllToAll barrier(contexts.back());
    barrier.run();
    shift(rank, contexts.back());
    rank.meet();
  }
  exchange_by_all(rank, contexts);
  rank.meet();
}

// Ranks learn of a peer's end at once, not after the timeout.
void peer_goes(Rank& rank) {
  auto device = make_device(rank.options);
  auto context = rank.connect(milliseconds(600000), device);
  shift(rank, context);
  if (rank.rank == 0) {
    rank.meet();
    rank.release();
    context.reset();
    device.reset();
    return rank.meet();
  }
  Memory memory(context, 8);
  memory->recv(0, 4);
  rank.meet();
  rank.note(outcome_of([&] { return memory->waitRecv(); }));
  Memory other(context, 8);
  rank.note("then send " + outcome_of([&] { other->send(0, 4); }));
  rank.meet();
}

}  // namespace

void add_contexts(const Options& options, Cases& cases) {
  if (options.size < 2) return;
  cases.push_back({"several contexts of a device", several_of_a_device});
  cases.push_back({"several devices", several_devices});
  cases.push_back({"device is held by its context", device_is_held_by_context});
  cases.push_back({"contexts again and again", again_and_again});
  cases.push_back({"contexts again after failure", again_after_failure});
  cases.push_back({"buffer outlives its context", buffer_outlives_context});
  cases.push_back({"context factory", [](Rank& rank) { factory(rank, false); }});
  cases.push_back({"context factory of devices", [](Rank& rank) { factory(rank, true); }});
  cases.push_back({"peer goes", peer_goes});
}

}  // namespace nezha::gloo_cases
