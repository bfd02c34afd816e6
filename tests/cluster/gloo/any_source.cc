// SPDX-License-Identifier: Apache-2.0
// Receives from any of a set of ranks.
#include <algorithm>
#include <list>
#include <set>

#include "cluster/gloo/cases.h"
#include "cluster/gloo/data.h"
#include "cluster/gloo/memory.h"

namespace nezha::gloo_cases {
namespace {

void send(Rank& rank, int to, uint32_t slot, size_t bytes, int which) {
  Memory out(rank.context(), bytes, rank.values<uint8_t>(slot, which));
  out->send(to, slot);
  out->waitSend();
}

// Returns the source of the message.
int receive(const Memory& in) {
  int from = -1;
  in->waitRecv(&from);
  return from;
}

// Rank 0 receives one message from each other rank, in any order.
void each_once(Rank& rank, size_t bytes) {
  const uint32_t slot = rank.tag();
  if (rank.rank != 0) return send(rank, 0, slot, bytes, rank.rank);
  std::set<int> missing;
  for (const int peer : rank.others()) missing.insert(peer);
  while (!missing.empty()) {
    Memory in(rank.context(), bytes + 1);
    in->recv(rank.others(), slot);
    const int from = receive(in);
    if (missing.erase(from) == 0) throw Wrong("a second message of rank " + std::to_string(from));
    in.check_part(0, bytes, rank.values<uint8_t>(slot, from));
    in.check_untouched(bytes);
  }
}

// As each_once(), but all receives wait at the same time, each on a buffer of its own.
void several_at_once(Rank& rank, size_t bytes) {
  const uint32_t slot = rank.tag();
  if (rank.rank != 0) {
    rank.meet();
    return send(rank, 0, slot, bytes, rank.rank);
  }
  std::list<Memory> memories;
  for (size_t i = 0; i < rank.others().size(); ++i) {
    memories.emplace_back(rank.context(), bytes + 1)->recv(rank.others(), slot);
  }
  rank.meet();
  std::set<int> seen;
  for (const auto& in : memories) {
    const int from = receive(in);
    in.check_part(0, bytes, rank.values<uint8_t>(slot, from));
    seen.insert(from);
  }
  check_same("the number of sources", seen.size(), memories.size());
}

// Messages that have arrived are received in the order of arrival, whatever the order of the set.
void in_order_of_arrival(Rank& rank) {
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  const uint32_t after = rank.tag();
  Memory out(context, 8, rank.values<uint8_t>(slot, rank.rank));
  for (int peer = 1; peer < rank.size; ++peer) {
    if (rank.rank == peer) {
      out->send(0, slot);
      send(rank, 0, after, 8, peer);  // When this arrives, rank 0 knows of the first message.
    }
    if (rank.rank == 0) {
      Memory in(context, 8);
      in->recv(peer, after);
      in->waitRecv();
    }
    rank.meet();
  }
  if (rank.rank != 0) {
    out->waitSend();
    return;
  }
  const std::vector<int> order = rank.others();
  std::string seen;
  for (size_t i = 0; i < order.size(); ++i) {
    Memory in(context, 8);
    in->recv(std::vector<int>(order.rbegin(), order.rend()), slot);
    const int from = receive(in);
    in.check_part(0, 8, rank.values<uint8_t>(slot, from));
    seen += " " + std::to_string(from);
  }
  rank.note("from" + seen);
}

// Two receives wait; a message goes to the first one whose set contains its source.
void first_that_may(Rank& rank) {
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  if (rank.rank > 2) return rank.meet();
  if (rank.rank != 0) {
    rank.meet();
    send(rank, 0, slot, 8, rank.rank);
    return;
  }
  Memory of_two(context, 8);
  Memory of_both(context, 8);
  of_two->recv(std::vector<int>{2}, slot);
  of_both->recv(std::vector<int>{1, 2}, slot);
  rank.meet();
  const int first = receive(of_two);
  const int second = receive(of_both);
  rank.note("from " + std::to_string(first) + " and " + std::to_string(second));
  of_two.check_part(0, 8, rank.values<uint8_t>(slot, 2));
  of_both.check_part(0, 8, rank.values<uint8_t>(slot, 1));
}

// Two receives wait for messages of rank 1: the first names a set, the second only rank 1.
void beside_one_source(Rank& rank) {
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  if (rank.rank > 1) return rank.meet();
  if (rank.rank == 1) {
    rank.meet();
    send(rank, 0, slot, 8, 1);
    send(rank, 0, slot, 8, 2);
    return;
  }
  Memory any(context, 8);
  Memory one(context, 8);
  any->recv(rank.others(), slot);
  one->recv(1, slot);
  rank.meet();
  receive(one);
  receive(any);
  const bool is_first = one.holds(8, rank.values<uint8_t>(slot, 1));
  one.check_part(0, 8, rank.values<uint8_t>(slot, is_first ? 1 : 2));
  any.check_part(0, 8, rank.values<uint8_t>(slot, is_first ? 2 : 1));
  rank.note(is_first ? "the one that names the rank is first"
                     : "the one that was posted first is first");
}

// Each rank sends an empty message and then a request, as to a server.
void request(Rank& rank) {
  constexpr int kRequests = 5;
  const auto context = rank.context();
  const uint32_t slot = rank.tag();
  if (rank.rank != 0) {
    for (int i = 0; i < kRequests; ++i) {
      send(rank, 0, slot, 0, 0);
      send(rank, 0, slot, 64, rank.rank * kRequests + i);
    }
    return;
  }
  std::vector<int> requests(static_cast<size_t>(rank.size), 0);
  for (int i = 0; i < kRequests * (rank.size - 1); ++i) {
    Memory head(context, 8);
    head->recv(rank.others(), slot, 0, 0);
    const int from = receive(head);
    head.check_untouched(0);
    Memory body(context, 64);
    body->recv(from, slot);
    body->waitRecv();
    body.check_part(
        0, 64,
        rank.values<uint8_t>(slot, from * kRequests + requests[static_cast<size_t>(from)]++));
  }
}

}  // namespace

void add_any_source(const Options& options, Cases& cases) {
  if (options.size < 2) return;
  for (const size_t bytes : {0U, 8U, 1000U, 300000U}) {
    const std::string tail = " " + std::to_string(bytes);
    cases.push_back({"any source each once" + tail, [=](Rank& rank) { each_once(rank, bytes); }});
    cases.push_back(
        {"any source several at once" + tail, [=](Rank& rank) { several_at_once(rank, bytes); }});
  }
  cases.push_back({"any source in order of arrival", in_order_of_arrival});
  cases.push_back({"any source requests", request});
  cases.push_back({"any source beside one source", beside_one_source});
  if (options.size > 2) cases.push_back({"any source first that may", first_that_may});
}

}  // namespace nezha::gloo_cases
