// SPDX-License-Identifier: Apache-2.0
// Sends and receives of unbound buffers, from one rank to another.
#include <algorithm>
#include <list>
#include <set>

#include "cluster/gloo/cases.h"
#include "cluster/gloo/data.h"
#include "cluster/gloo/memory.h"

namespace nezha::gloo_cases {
namespace {

// All ranks send to all others at once.
void exchange(Rank& rank, size_t bytes) {
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  std::list<Memory> sent;
  std::list<Memory> received;
  for (const int peer : rank.others()) {
    received.emplace_back(context, bytes)->recv(peer, slot);
    sent.emplace_back(context, bytes, rank.values<uint8_t>(slot, rank.rank * rank.size + peer))
        ->send(peer, slot);
  }
  auto in = received.begin();
  auto out = sent.begin();
  for (const int peer : rank.others()) {
    int from = -1;
    int to = -1;
    (*in)->waitRecv(&from);
    (*out++)->waitSend(&to);
    check_same("the source", from, peer);
    check_same("the destination", to, peer);
    in++->check_part(0, bytes, rank.values<uint8_t>(slot, peer * rank.size + rank.rank));
  }
}

enum class First { kSend, kReceive };

// Each rank sends `sent` bytes to the next, which has posted a receive of `posted` bytes.
void shorter(Rank& rank, First first, size_t sent, size_t posted) {
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  Memory out(context, sent, rank.values<uint8_t>(slot, rank.rank));
  Memory in(context, posted);
  if (first == First::kSend) out->send(rank.next(), slot);
  if (first == First::kReceive) in->recv(rank.previous(), slot);
  rank.meet();
  if (first == First::kSend) in->recv(rank.previous(), slot);
  if (first == First::kReceive) out->send(rank.next(), slot);
  in->waitRecv();
  out->waitSend();
  in.check_part(0, sent, rank.values<uint8_t>(slot, rank.previous()));
  in.check_untouched(sent);
}

void offsets(Rank& rank) {
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  Memory out(context, 1000, rank.values<uint8_t>(slot, rank.rank));
  Memory in(context, 1000);
  in->recv(rank.previous(), slot, 300, 200);
  out->send(rank.next(), slot, 0, 200);
  in->waitRecv();
  out->waitSend();
  in.check_part(300, 200, rank.values<uint8_t>(slot, rank.previous()));
  in.check_untouched(500);
  in->recv(rank.previous(), slot, 900);  // the receive takes the rest of the buffer
  out->send(rank.next(), slot, 0, 100);
  in->waitRecv();
  out->waitSend();
  in.check_part(900, 100, rank.values<uint8_t>(slot, rank.previous()));
  in.check_untouched(1000);
}

// Several receives on one buffer and slot: the waits complete in the order of posting. The first
// segment is the largest, so the later ones arrive before it.
void segments(Rank& rank, size_t bytes, First first) {
  constexpr size_t kSegments = 6;
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  Memory in(context, kSegments * bytes);
  std::list<Memory> out;
  const auto length = [bytes](size_t i) { return i == 0 ? bytes : bytes / 16; };
  const auto data = [&](int of, size_t i) {
    return rank.values<uint8_t>(slot, static_cast<size_t>(of) * kSegments + i);
  };
  const auto receive = [&] {
    for (size_t i = 0; i < kSegments; ++i) in->recv(rank.previous(), slot, i * bytes, length(i));
  };
  if (first == First::kReceive) receive();
  rank.meet();
  for (size_t i = 0; i < kSegments; ++i) {
    out.emplace_back(context, length(i), data(rank.rank, i))->send(rank.next(), slot);
  }
  if (first == First::kSend) {
    rank.meet();
    receive();
  }
  for (size_t i = 0; i < kSegments; ++i) {
    in->waitRecv();
    in.check_part(i * bytes, length(i), data(rank.previous(), i));
  }
  for (auto& each : out) each->waitSend();
}

// Sends one buffer in parts, from several offsets and to several ranks.
void parts(Rank& rank) {
  constexpr size_t kBytes = 5000;
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  Memory out(context, kBytes, rank.values<uint8_t>(slot, rank.rank));
  std::list<Memory> received;
  for (const int peer : rank.others()) {
    received.emplace_back(context, kBytes / 2)->recv(peer, slot);
    out->send(peer, slot, 0, kBytes / 2);
  }
  for (size_t i = 0; i < received.size(); ++i) out->waitSend();
  auto in = received.begin();
  for (const int peer : rank.others()) {
    (*in)->waitRecv();
    in++->check_part(0, kBytes / 2, rank.values<uint8_t>(slot, peer));
  }
}

// Slots are independent, also if the receives are in reverse order or the numbers need all 64 bits.
void slots(Rank& rank) {
  constexpr uint64_t kSlots = 40;
  const auto context = rank.context();
  const uint32_t tag = rank.tag();
  const auto slot = [&](uint64_t i) { return (i << 56) | (static_cast<uint64_t>(tag) << 8) | i; };
  std::list<Memory> out;
  for (uint64_t i = 0; i < kSlots; ++i) {
    const auto data =
        rank.values<uint8_t>(tag, rank.rank * static_cast<int>(kSlots) + static_cast<int>(i));
    out.emplace_back(context, 100 + i, data)->send(rank.next(), slot(i));
  }
  for (uint64_t i = kSlots; i-- > 0;) {
    Memory in(context, 100 + i);
    in->recv(rank.previous(), slot(i));
    in->waitRecv();
    in.check_part(0, 100 + i,
                  rank.values<uint8_t>(
                      tag, rank.previous() * static_cast<int>(kSlots) + static_cast<int>(i)));
  }
  for (auto& each : out) each->waitSend();
}

void out_of_bounds(Rank& rank) {
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  const int peer = rank.next();
  Memory memory(context, 100);
  rank.note("send from beyond " + outcome_of([&] { memory->send(peer, slot, 101); }));
  rank.note("send too much " + outcome_of([&] { memory->send(peer, slot, 50, 51); }));
  rank.note("recv beyond " + outcome_of([&] { memory->recv(peer, slot, 101); }));
  rank.note("recv too much " + outcome_of([&] { memory->recv(peer, slot, 0, 101); }));
  rank.note("recv from any beyond " +
            outcome_of([&] { memory->recv(std::vector<int>{peer}, slot, 101); }));
  shorter(rank, First::kSend, 100, 100);  // The errors have not harmed the context.
}

}  // namespace

void add_unbound(const Options& options, Cases& cases) {
  if (options.size < 2) return;
  for (const size_t bytes : {0U, 1U, 4U, 1000U, 65536U, 1048579U, 67108864U}) {
    if (bytes * static_cast<size_t>(options.size) > 4 * options.max_bytes) continue;
    cases.push_back(
        {"unbound exchange " + std::to_string(bytes), [=](Rank& rank) { exchange(rank, bytes); }});
    for (const First first : {First::kSend, First::kReceive}) {
      const std::string tail = first == First::kSend ? ", sent first" : ", posted first";
      cases.push_back({"unbound segments of " + std::to_string(bytes) + tail,
                       [=](Rank& rank) { segments(rank, bytes, first); }});
      for (const size_t sent : std::set<size_t>{0, bytes / 2, bytes}) {
        cases.push_back(
            {"unbound " + std::to_string(sent) + " into " + std::to_string(bytes) + tail,
             [=](Rank& rank) { shorter(rank, first, sent, bytes); }});
      }
    }
  }
  cases.push_back({"unbound offsets", offsets});
  cases.push_back({"unbound parts of one buffer", parts});
  cases.push_back({"unbound slots", slots});
  cases.push_back({"unbound out of bounds", out_of_bounds});
}

}  // namespace nezha::gloo_cases
