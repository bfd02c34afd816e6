// SPDX-License-Identifier: Apache-2.0
// Waits that end without the event that they wait for.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "cluster/gloo/cases.h"
#include "cluster/gloo/data.h"
#include "cluster/gloo/memory.h"

namespace nezha::gloo_cases {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort(200);
// For cases in which the ranks must get this far before one of them gives up.
constexpr milliseconds kLonger(1000);

enum class What { kSend, kReceive };

bool wait(const Memory& memory, What what, milliseconds timeout = gloo::transport::kUnsetTimeout) {
  return what == What::kSend ? memory->waitSend(timeout) : memory->waitRecv(timeout);
}

void post(const Memory& memory, What what, int peer, uint64_t slot) {
  if (what == What::kSend) memory->send(peer, slot);
  if (what == What::kReceive) memory->recv(peer, slot);
}

void abort_wait(const Memory& memory, What what) {
  if (what == What::kSend) memory->abortWaitSend();
  if (what == What::kReceive) memory->abortWaitRecv();
}

// The effect of a failure elsewhere. The words depend on the device, but the failure must arrive
// before the call's own timeout.
template <typename F>
std::string consequence(const Rank& rank, const F& call) {
  const std::string own = " " + std::to_string(rank.options.timeout.count()) + "ms ";
  const std::string outcome = outcome_of(call);
  return outcome.find(own) == std::string::npos ? outcome.substr(0, outcome.find(':')) : "too late";
}

// ---- Timeouts ----------------------------------------------------------------------------------

// Rank 0 waits until its timeout. Afterwards its pairs are broken, and the other ranks know it.
void times_out(Rank& rank, What what, milliseconds timeout) {
  const auto context = rank.connect();
  Memory memory(context, 8);
  if (rank.rank != 0) {
    memory->recv(0, 7);
    rank.meet();
    return rank.note("from rank 0 " + consequence(rank, [&] { return memory->waitRecv(); }));
  }
  rank.meet();
  post(memory, what, 1, 8);
  rank.note(outcome_of([&] { return wait(memory, what, timeout); }));
  Memory other(context, 8);
  rank.note("then send " + consequence(rank, [&] { other->send(rank.size - 1, 7); }));
  rank.note("then recv " + consequence(rank, [&] { other->recv(rank.size - 1, 7); }));
}

// Waits without a pending receive or send.
void nothing_posted(Rank& rank, What what) {
  const auto context = rank.connect();
  Memory memory(context, 8);
  if (rank.rank == 0) rank.note(outcome_of([&] { return wait(memory, what, kShort); }));
}

// A wait without a timeout uses the one that the context had when it connected.
void timeout_of_context(Rank& rank, What what) {
  const auto context = rank.connect(kLonger);
  rank.meet();
  context->setTimeout(2 * kLonger);
  Memory memory(context, 8);
  if (rank.rank != 0) return;
  post(memory, what, 1, 9);
  rank.note(outcome_of([&] { return wait(memory, what); }));
}

// After rank 0 has given up rank 1, tests whether rank 1 and the other ranks can still exchange
// messages.
void others_hear(Rank& rank) {
  const auto context = rank.connect();
  Memory memory(context, 8);
  if (rank.rank == 0) {
    memory->recv(1, 8);
    rank.note(outcome_of([&] { return memory->waitRecv(kShort); }));
  } else if (rank.rank == 1) {
    memory->recv(0, 8);
    rank.note("from rank 0 " + consequence(rank, [&] { memory->waitRecv(); }));
  }
  rank.meet();
  for (const int peer : rank.others()) {
    if (rank.rank == 0 || peer == 0 || (rank.rank != 1 && peer != 1)) continue;
    Memory in(context, 1000);
    Memory out(context, 1000, rank.values<uint8_t>(7, rank.rank));
    rank.note("with rank " + std::to_string(peer) + " " + consequence(rank, [&] {
                in->recv(peer, 7);
                out->send(peer, 7);
                in->waitRecv();
                out->waitSend();
                in.check_part(0, 1000, rank.values<uint8_t>(7, peer));
              }));
  }
}

// A wait in another thread ends when this thread's wait times out.
void another_thread(Rank& rank) {
  const auto context = rank.connect();
  if (rank.rank != 0) return;
  Memory in(context, 8);
  in->recv(1, 8);
  std::string outcome;
  std::thread thread([&] { outcome = consequence(rank, [&] { return in->waitRecv(); }); });
  Memory other(context, 8);
  other->recv(rank.size - 1, 9);
  rank.note(outcome_of([&] { return other->waitRecv(kShort); }));
  thread.join();
  rank.note("the other thread " + outcome);
}

// ---- Collectives that a rank does not take part in ---------------------------------------------

template <typename OptionsOf>
OptionsOf options_of(const Rank& rank, const std::shared_ptr<gloo::Context>& context) {
  OptionsOf options(context);
  options.setTag(static_cast<uint32_t>(rank.size));
  options.setTimeout(kLonger);
  return options;
}

void barrier(Rank& rank, const std::shared_ptr<gloo::Context>& context) {
  auto options = options_of<gloo::BarrierOptions>(rank, context);
  gloo::barrier(options);
}

void allreduce(Rank& rank, const std::shared_ptr<gloo::Context>& context) {
  std::vector<float> data(1000);
  auto options = options_of<gloo::AllreduceOptions>(rank, context);
  options.setOutput(data.data(), data.size());
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  gloo::allreduce(options);
}

void broadcast(Rank& rank, const std::shared_ptr<gloo::Context>& context) {
  std::vector<float> data(1);
  auto options = options_of<gloo::BroadcastOptions>(rank, context);
  options.setOutput(data.data(), data.size());
  options.setRoot(0);
  gloo::broadcast(options);
}

using Collective = void (*)(Rank&, const std::shared_ptr<gloo::Context>&);

// The last rank does not call. With more than two ranks, any rank may time out first.
void without_one(Rank& rank, Collective call) {
  const auto context = rank.connect();
  rank.meet();
  if (rank.rank == rank.size - 1) return;
  const auto attempt = [&] { call(rank, context); };
  rank.note(rank.size > 2 ? consequence(rank, attempt) : outcome_of(attempt));
}

// ---- Aborts ------------------------------------------------------------------------------------

// An abort without a wait ends the next wait and no other; several aborts count as one.
void abort_before(Rank& rank, What what) {
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  const int peer = rank.rank ^ 1;
  if (peer >= rank.size) return;
  const What mine =
      rank.rank % 2 == 0 ? what : (what == What::kSend ? What::kReceive : What::kSend);
  Memory memory(context, 8, rank.values<uint8_t>(slot, rank.rank));
  if (mine == what) {
    abort_wait(memory, what);
    abort_wait(memory, what);
    rank.note(outcome_of([&] { return wait(memory, what); }));
  }
  post(memory, mine, peer, slot);
  rank.note(outcome_of([&] { return wait(memory, mine); }));
  if (mine == What::kReceive) memory.check_part(0, 8, rank.values<uint8_t>(slot, peer));
}

// Aborting a wait does not withdraw what was posted.
void abort_during(Rank& rank, What what) {
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  Memory memory(context, 8, rank.values<uint8_t>(slot, rank.rank));
  if (rank.rank == 0) {
    post(memory, what, 1, slot);
    std::string outcome;
    std::thread thread([&] { outcome = outcome_of([&] { return wait(memory, what); }); });
    std::this_thread::sleep_for(kShort / 4);  // if the abort comes first, the effect is the same
    abort_wait(memory, what);
    thread.join();
    rank.note(outcome);
  }
  rank.meet();
  if (rank.rank == 1) post(memory, what == What::kSend ? What::kReceive : What::kSend, 0, slot);
  if (rank.rank > 1) return;
  const What mine = rank.rank == 0 || what == What::kSend ? what : What::kSend;
  rank.note(outcome_of([&] {
    return wait(memory, rank.rank == 0 ? what : what == What::kSend ? What::kReceive : mine);
  }));
}

// Aborting one direction does not affect a wait in the other direction.
void abort_other_direction(Rank& rank) {
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  Memory in(context, 8);
  Memory out(context, 8, rank.values<uint8_t>(slot, rank.rank));
  in->recv(rank.previous(), slot);
  in->abortWaitSend();
  out->send(rank.next(), slot);
  out->abortWaitRecv();
  rank.note(outcome_of([&] { return in->waitRecv(); }));
  rank.note(outcome_of([&] { return out->waitSend(); }));
  in.check_part(0, 8, rank.values<uint8_t>(slot, rank.previous()));
}

std::string name_of_direction(What what) { return what == What::kSend ? "send" : "recv"; }

}  // namespace

void add_waits(const Options& options, Cases& cases) {
  if (options.size < 2) return;
  for (const What what : {What::kSend, What::kReceive}) {
    const std::string name = name_of_direction(what);
    for (const int ms : {200, 0}) {
      cases.push_back({"wait " + name + " times out after " + std::to_string(ms),
                       [=](Rank& rank) { times_out(rank, what, milliseconds(ms)); }});
    }
    cases.push_back(
        {"wait " + name + " with nothing posted", [=](Rank& rank) { nothing_posted(rank, what); }});
    cases.push_back({"wait " + name + " has the context's timeout",
                     [=](Rank& rank) { timeout_of_context(rank, what); }});
    cases.push_back({"abort " + name + " before", [=](Rank& rank) { abort_before(rank, what); }});
    cases.push_back({"abort " + name + " during", [=](Rank& rank) { abort_during(rank, what); }});
  }
  cases.push_back({"abort of the other direction", abort_other_direction});
  cases.push_back({"wait of another thread", another_thread});
  if (options.size > 2) cases.push_back({"wait that the others hear of", others_hear});
  const std::vector<std::pair<std::string, Collective>> collectives = {
      {"barrier", barrier}, {"allreduce", allreduce}, {"broadcast", broadcast}};
  for (const auto& [name, call] : collectives) {
    cases.push_back({"wait of the " + name + " without one rank",
                     [c = call](Rank& rank) { without_one(rank, c); }});
  }
}

}  // namespace nezha::gloo_cases
