// SPDX-License-Identifier: Apache-2.0
// Buffers that are bound to a pair and a slot.
#include <gloo/transport/buffer.h>

#include <chrono>
#include <list>

#include "cluster/gloo/cases.h"
#include "cluster/gloo/data.h"

namespace nezha::gloo_cases {
namespace {

using std::chrono::milliseconds;
using Buffer = std::unique_ptr<gloo::transport::Buffer>;
using Bytes = std::vector<uint8_t>;

constexpr milliseconds kShort(1000);  // but long enough to connect

void check_part(const Bytes& bytes, size_t offset, size_t count, const Values<uint8_t>& wanted) {
  check("what came", bytes.data() + offset, count, [&](size_t i) { return wanted[i]; });
}

// All ranks send to all others, several times with the same buffers.
void exchange(Rank& rank, size_t bytes) {
  const auto context = rank.context();
  const int slot = context->nextSlot();
  std::list<Bytes> in;
  std::list<Bytes> out;
  std::vector<Buffer> receives;
  std::vector<Buffer> sends;
  for (const int peer : rank.others()) {
    auto& pair = context->getPair(peer);
    receives.push_back(pair->createRecvBuffer(slot, in.emplace_back(bytes + 1).data(), bytes));
    sends.push_back(pair->createSendBuffer(slot, out.emplace_back(bytes + 1).data(), bytes));
  }
  rank.meet();  // Gloo's tcp device never completes an empty message that arrives before its
                // buffer exists.
  for (int run = 0; run < 3; ++run) {
    const uint32_t tag = rank.tag();
    auto from = in.begin();
    auto to = out.begin();
    for (size_t i = 0; i < sends.size(); ++i, ++to) {
      const auto data = rank.values<uint8_t>(tag, rank.rank * rank.size + rank.others()[i]);
      for (size_t at = 0; at < bytes; ++at) (*to)[at] = data[at];
      sends[i]->send(0, bytes);
    }
    for (size_t i = 0; i < receives.size(); ++i, ++from) {
      receives[i]->waitRecv();
      check_part(*from, 0, bytes,
                 rank.values<uint8_t>(tag, rank.others()[i] * rank.size + rank.rank));
    }
    for (auto& send : sends) send->waitSend();
    rank.meet();
  }
}

// Several messages are in flight between different offsets; the waits complete in their order.
void offsets(Rank& rank, size_t part) {
  constexpr size_t kParts = 4;
  const auto context = rank.context();
  const int slot = context->nextSlot();
  const uint32_t tag = rank.tag();
  Bytes in(kParts * part);
  Bytes out = rank.values<uint8_t>(tag, rank.rank).first(kParts * part);
  const auto receive =
      context->getPair(rank.previous())->createRecvBuffer(slot, in.data(), in.size());
  const auto send = context->getPair(rank.next())->createSendBuffer(slot, out.data(), out.size());
  rank.meet();
  for (size_t i = 0; i < kParts; ++i) send->send(i * part, part, (kParts - 1 - i) * part);
  const auto wanted = rank.values<uint8_t>(tag, rank.previous());
  for (size_t i = 0; i < kParts; ++i) {
    receive->waitRecv();
    check("part " + std::to_string(i), in.data() + (kParts - 1 - i) * part, part,
          [&](size_t at) { return wanted[i * part + at]; });
  }
  for (size_t i = 0; i < kParts; ++i) send->waitSend();
  rank.meet();
}

// Empty messages complete like others.
void zero_length(Rank& rank) {
  const auto context = rank.context();
  const int slot = context->nextSlot();
  const uint32_t tag = rank.tag();
  Bytes in(8);
  Bytes out = rank.values<uint8_t>(tag, rank.rank).first(8);
  const auto receive =
      context->getPair(rank.previous())->createRecvBuffer(slot, in.data(), in.size());
  const auto send = context->getPair(rank.next())->createSendBuffer(slot, out.data(), out.size());
  rank.meet();
  send->send(0, 0);
  send->send(0, 8);
  send->send(8, 0, 8);
  for (int i = 0; i < 3; ++i) receive->waitRecv();
  for (int i = 0; i < 3; ++i) send->waitSend();
  check_part(in, 0, 8, rank.values<uint8_t>(tag, rank.previous()));
  rank.meet();
}

// The receiver creates its buffer when the message, and another one, are already in flight.
void registered_late(Rank& rank, size_t bytes) {
  const auto context = rank.context();
  const int first = context->nextSlot();
  const int second = context->nextSlot();
  const uint32_t tag = rank.tag();
  Bytes out = rank.values<uint8_t>(tag, rank.rank).first(bytes);
  auto& to = context->getPair(rank.next());
  const auto send = to->createSendBuffer(first, out.data(), bytes);
  const auto send_other = to->createSendBuffer(second, out.data(), bytes);
  send->send();
  send_other->send();
  rank.meet();
  auto& from = context->getPair(rank.previous());
  Bytes in(bytes);
  Bytes in_other(bytes);
  const auto receive = from->createRecvBuffer(first, in.data(), bytes);
  receive->waitRecv();
  const auto receive_other = from->createRecvBuffer(second, in_other.data(), bytes);
  receive_other->waitRecv();
  check_part(in, 0, bytes, rank.values<uint8_t>(tag, rank.previous()));
  check_part(in_other, 0, bytes, rank.values<uint8_t>(tag, rank.previous()));
  send->waitSend();
  send_other->waitSend();
  rank.meet();
}

// A slot can be used again after its buffer has been destroyed.
void slot_again(Rank& rank) {
  const auto context = rank.context();
  const int slot = context->nextSlot();
  for (int run = 0; run < 3; ++run) {
    const uint32_t tag = rank.tag();
    Bytes in(100);
    Bytes out = rank.values<uint8_t>(tag, rank.rank).first(100);
    const auto receive = context->getPair(rank.previous())->createRecvBuffer(slot, in.data(), 100);
    const auto send = context->getPair(rank.next())->createSendBuffer(slot, out.data(), 100);
    rank.meet();
    send->send();
    receive->waitRecv();
    send->waitSend();
    check_part(in, 0, 100, rank.values<uint8_t>(tag, rank.previous()));
    rank.meet();
  }
}

template <typename F>
std::string refusal(const F& call) {
  return outcome_of(call) == "ok" ? "taken" : "refused";
}

void misuse(Rank& rank) {
  const auto context = rank.context();
  const int slot = context->nextSlot();
  auto& pair = context->getPair(rank.next());
  Bytes bytes(100);
  const auto receive = pair->createRecvBuffer(slot, bytes.data(), 100);
  rank.note("the slot twice " + refusal([&] { pair->createRecvBuffer(slot, bytes.data(), 100); }));
  const auto send = pair->createSendBuffer(slot, bytes.data(), 100);
  rank.note("send too much " + outcome_of([&] { send->send(50, 51); }));
  rank.note("wait for no send " + outcome_of([&] { send->waitSend(); }));
  rank.meet();
  offsets(rank, 10);  // The errors have not harmed the context.
}

// Messages around a ring, after all pairs were switched to synchronous mode.
void sync_mode(Rank& rank, bool busy) {
  const auto context = rank.connect();
  for (const int peer : rank.others()) context->getPair(peer)->setSync(true, busy);
  Bytes in(1000);
  Bytes out(1000);
  const auto receive = context->getPair(rank.previous())->createRecvBuffer(1, in.data(), 1000);
  const auto send = context->getPair(rank.next())->createSendBuffer(1, out.data(), 1000);
  for (int run = 0; run < 10; ++run) {
    const uint32_t tag = rank.tag();
    const auto data = rank.values<uint8_t>(tag, rank.rank);
    for (size_t i = 0; i < out.size(); ++i) out[i] = data[i];
    send->send();
    receive->waitRecv();
    send->waitSend();
    check_part(in, 0, 1000, rank.values<uint8_t>(tag, rank.previous()));
    rank.meet();
  }
}

// Rank 0 waits for a message that is never sent. Afterwards it cannot send, and the next rank
// receives nothing.
void times_out(Rank& rank) {
  const auto context = rank.connect(rank.rank == 0 ? kShort : rank.options.timeout);
  Bytes bytes(8);
  if (rank.rank > 1) return;
  auto& pair = context->getPair(rank.rank ^ 1);
  const auto receive = pair->createRecvBuffer(1, bytes.data(), 8);
  const auto send = pair->createSendBuffer(1, bytes.data(), 8);
  rank.note(type_of([&] { receive->waitRecv(); }));
  rank.note("then send " + type_of([&] { send->send(); }));
}

void closed(Rank& rank) {
  const auto context = rank.connect();
  Bytes bytes(8);
  auto& pair = context->getPair(rank.next());
  const auto receive = context->getPair(rank.previous())->createRecvBuffer(1, bytes.data(), 8);
  const auto send = pair->createSendBuffer(1, bytes.data(), 8);
  rank.meet();
  if (rank.rank == 0) {
    context->closeConnections();
    rank.note("send " + outcome_of([&] { send->send(); }));
  } else if (rank.rank == 1) {
    rank.note("wait " + outcome_of([&] { receive->waitRecv(); }));
  }
  rank.meet();
}

}  // namespace

void add_bound(const Options& options, Cases& cases) {
  if (options.size < 2) return;
  for (const size_t bytes : {0U, 1U, 4U, 1000U, 65536U, 1048579U, 67108864U}) {
    if (bytes * static_cast<size_t>(options.size) > 4 * options.max_bytes) continue;
    const std::string tail = " " + std::to_string(bytes);
    cases.push_back({"bound exchange" + tail, [=](Rank& rank) { exchange(rank, bytes); }});
    cases.push_back({"bound offsets" + tail, [=](Rank& rank) { offsets(rank, bytes); }});
    if (bytes == 0) continue;
    cases.push_back(
        {"bound registered late" + tail, [=](Rank& rank) { registered_late(rank, bytes); }});
  }
  cases.push_back({"bound zero length", zero_length});
  cases.push_back({"bound slot again", slot_again});
  cases.push_back({"bound misuse", misuse});
  cases.push_back({"bound sync mode", [](Rank& rank) { sync_mode(rank, false); }});
  cases.push_back({"bound busy polling", [](Rank& rank) { sync_mode(rank, true); }});
  cases.push_back({"bound wait times out", times_out});
  cases.push_back({"bound closed", closed});
}

}  // namespace nezha::gloo_cases
