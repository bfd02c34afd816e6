// SPDX-License-Identifier: Apache-2.0
// Sends and receives.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/scenarios/scenario.h"
#include "nezha/errors.h"
#include "nezha/handle.h"
#include "nezha/send_recv.h"

namespace nezha::scenarios {
namespace {

// A message whose values show its source and its number among the source's messages.
std::vector<uint32_t> message(int from, int number, size_t elements) {
  std::vector<uint32_t> values(elements);
  const auto base = static_cast<uint32_t>(from * 1000 + number) * 0x9e3779b1U;
  for (size_t i = 0; i < elements; ++i) values[i] = base + static_cast<uint32_t>(i) * 0x85ebca6bU;
  return values;
}

void check_is(const std::vector<uint32_t>& values, int from, int number) {
  if (values == message(from, number, values.size())) return;
  throw std::logic_error("not message " + std::to_string(number) + " of rank " +
                         std::to_string(from));
}

nezha::SendOptions to(const Context& context, int rank, const std::vector<uint32_t>& values,
                      uint64_t tag = 1) {
  nezha::SendOptions options(context);
  options.setDestination(rank);
  options.setInput(values.data(), values.size());
  options.setTag(tag);
  return options;
}

nezha::RecvOptions into(const Context& context, std::vector<uint32_t>& values, uint64_t tag = 1) {
  nezha::RecvOptions options(context);
  options.setOutput(values.data(), values.size());
  options.setTag(tag);
  return options;
}

nezha::RecvOptions from(const Context& context, int rank, std::vector<uint32_t>& values,
                        uint64_t tag = 1) {
  auto options = into(context, values, tag);
  options.setSource(rank);
  return options;
}

// Messages with three tags are in flight at once. The receiver asks for them tag by tag, the last
// tag first. Messages with one tag keep their order, and none goes to another tag.
void exchanges_in_order(World& world) {
  const auto context = world.join();
  constexpr int kMessages = 60;
  constexpr std::array<uint64_t, 3> kTags{0, 7, (uint64_t{1} << 62) - 1};
  const auto length = [](int number) { return kSizes[static_cast<size_t>(number) % 4]; };
  std::vector<std::vector<uint32_t>> values;
  std::vector<nezha::Handle> handles;
  if (world.rank == 0) {
    for (int i = 0; i < kMessages; ++i) values.push_back(message(0, i, length(i)));
    for (int i = 0; i < kMessages; ++i) {
      const auto number = static_cast<size_t>(i);
      handles.push_back(nezha::sendAsync(to(context, 1, values[number], kTags[number % 3])));
    }
  } else {
    for (int i = 0; i < kMessages; ++i) values.emplace_back(length(i));
    for (int tag = 2; tag >= 0; --tag) {
      for (int i = tag; i < kMessages; i += 3) {
        auto& its = values[static_cast<size_t>(i)];
        handles.push_back(nezha::recvAsync(from(context, 0, its, kTags[static_cast<size_t>(tag)])));
      }
    }
  }
  nezha::waitAll(handles);
  for (int i = 0; i < kMessages; ++i) check_is(values[static_cast<size_t>(i)], 0, i);
}

// Rank 0 receives from any of a set of ranks, which all send at once; then it receives the
// remaining ranks' messages from any rank. The messages of each rank keep their order.
void any_of_several(World& world) {
  const auto context = world.join();
  constexpr int kEach = 20;
  const auto length = [](int number) { return kSizes[1 + static_cast<size_t>(number) % 3]; };
  if (world.rank != 0) {
    std::vector<std::vector<uint32_t>> values;
    std::vector<nezha::Handle> handles;
    for (int i = 0; i < kEach; ++i) {
      values.push_back(message(world.rank, i, length(i)));
      const auto tag = 5 + static_cast<uint64_t>(i % 3);
      handles.push_back(nezha::sendAsync(to(context, 0, values.back(), tag)));
    }
    return nezha::waitAll(handles);
  }
  const std::vector<int> some{3, 1};
  std::map<std::pair<int, int>, int> next;  // by rank and kind
  const auto receive = [&](int kind, const std::vector<int>& sources) {
    std::vector<uint32_t> values(length(kind));
    auto options = into(context, values, 5 + static_cast<uint64_t>(kind));
    if (sources.empty()) {
      options.setAnySource();
    } else {
      options.setSources(sources);
    }
    const int source = nezha::recv(options);
    const bool is_one =
        sources.empty() || std::find(sources.begin(), sources.end(), source) != sources.end();
    check(is_one, "from rank " + std::to_string(source));
    check_is(values, source, kind + 3 * next[{source, kind}]++);
  };
  for (int kind = 0; kind < 3; ++kind) {
    const int each = (kEach - kind + 2) / 3;
    for (int i = 0; i < 2 * each; ++i) receive(kind, some);
    for (int i = 0; i < (world.size - 3) * each; ++i) receive(kind, {});
  }
}

// Receives match messages in the order of the calls, whether they name one rank or several.
void order_of_receives(World& world) {
  const auto context = world.join();
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const size_t elements = kSizes[1 + round % 3];
    if (world.rank == 1) {
      if (round % 2 == 0) world.await("posted " + std::to_string(round));
      for (int i = 0; i < 4; ++i) nezha::send(to(context, 0, message(1, 4 * round + i, elements)));
      continue;
    }
    std::vector<std::vector<uint32_t>> values(4, std::vector<uint32_t>(elements));
    std::vector<nezha::Handle> handles;
    handles.push_back(nezha::recvAsync(from(context, 1, values[0])));
    auto several = into(context, values[1]);
    several.setSources({0, 1});
    handles.push_back(nezha::recvAsync(several));
    handles.push_back(nezha::recvAsync(from(context, 1, values[2])));
    auto any = into(context, values[3]);
    any.setAnySource();
    handles.push_back(nezha::recvAsync(any));
    if (round % 2 == 0) world.tell("posted " + std::to_string(round));
    nezha::waitAll(handles);
    for (int i = 0; i < 4; ++i) {
      const auto which = static_cast<size_t>(i);
      check(handles[which].source() == 1, "the source is not rank 1");
      check_is(values[which], 1, 4 * round + i);
    }
  }
}

void to_oneself(World& world) {
  const auto context = world.join();
  const int own = world.rank;
  for (const size_t elements : kSizes) {
    std::vector<uint32_t> first(elements), second(elements);
    const auto a = message(own, 1, elements), b = message(own, 2, elements);
    std::vector<nezha::Handle> handles;
    handles.push_back(nezha::sendAsync(to(context, own, a)));
    check(!handles[0].test(), "over before it was asked for");
    handles.push_back(nezha::recvAsync(from(context, own, first)));
    auto any = into(context, second);
    any.setAnySource();
    handles.push_back(nezha::recvAsync(any));
    check(!handles[2].test(), "over before anything was sent");
    nezha::send(to(context, own, b));
    nezha::waitAll(handles);
    check(handles[2].source() == own && handles[0].source() == -1, "the source is wrong");
    check_is(first, own, 1);
    check_is(second, own, 2);
  }
  // A message from another rank is never taken for one from this rank, or the reverse.
  const auto mine = message(own, 3, 10);
  std::vector<uint32_t> theirs(10), again(10);
  nezha::Handle sent = nezha::sendAsync(to(context, 1 - own, mine, 2));
  nezha::Handle kept = nezha::sendAsync(to(context, own, mine, 2));
  nezha::recv(from(context, 1 - own, theirs, 2));
  nezha::recv(from(context, own, again, 2));
  check_is(theirs, 1 - own, 3);
  check_is(again, own, 3);
  sent.wait();
  kept.wait();
}

// Every rank sends to every rank, including itself, all at once.
void all_pairs(World& world) {
  const auto context = world.join();
  for (int round = 0; round < 3; ++round) {
    const size_t elements = kSizes[static_cast<size_t>(round) + 2];
    std::vector<std::vector<uint32_t>> sent, got;
    for (int peer = 0; peer < world.size; ++peer) {
      sent.push_back(message(world.rank, 100 * round + peer, elements));
      got.emplace_back(elements);
    }
    std::vector<nezha::Handle> handles;
    for (int peer = 0; peer < world.size; ++peer) {
      const auto its = static_cast<size_t>(peer);
      handles.push_back(nezha::sendAsync(to(context, peer, sent[its])));
      handles.push_back(nezha::recvAsync(from(context, peer, got[its])));
    }
    nezha::waitAll(handles);
    for (int peer = 0; peer < world.size; ++peer) {
      check_is(got[static_cast<size_t>(peer)], peer, 100 * round + world.rank);
    }
  }
}

// Messages use the tags of collectives, and are many more than may wait at a rank that has not
// asked for them. The collectives continue nevertheless.
void beside_collectives(World& world) {
  const auto context = world.join();
  constexpr int kMessages = 40;
  constexpr size_t kElements = 50'000;
  std::vector<std::vector<uint32_t>> values;
  std::vector<nezha::Handle> handles;
  for (int i = 0; i < kMessages; ++i) {
    values.push_back(world.rank == 0 ? message(0, i, kElements) : std::vector<uint32_t>(kElements));
  }
  if (world.rank == 0) {
    for (auto& each : values) handles.push_back(nezha::sendAsync(to(context, 1, each)));
  }
  for (int i = 0; i < 10; ++i) check_works(context, i, kSizes[static_cast<size_t>(i) % 5]);
  if (world.rank == 0) check(!handles.back().test(), "over before it was asked for");
  if (world.rank == 1) {
    for (auto& each : values) handles.push_back(nezha::recvAsync(from(context, 0, each)));
  }
  for (int i = 0; i < 10; ++i) check_works(context, i, kSizes[static_cast<size_t>(i) % 5]);
  nezha::waitAll(handles);
  for (int i = 0; i < kMessages; ++i) check_is(values[static_cast<size_t>(i)], 0, i);
}

// A caller's struct, a type that is known only at run time, and bytes. A message is just bytes.
void exchanged_types(World& world) {
  struct Pair {
    double value;
    uint16_t number;
  };
  const auto context = world.join();
  const Pair sent{2.5, 77};
  Pair got{};
  std::array<float, 3> floats{1, 2, 3};
  std::array<std::byte, 12> bytes{};
  if (world.rank == 0) {
    nezha::SendOptions options(context);
    options.setDestination(1);
    options.setInput(&sent, 1);
    nezha::send(options);
    options.setInput(nezha::DataType::kFloat32, floats.data(), floats.size());
    nezha::send(options);
    options.setInput(static_cast<const void*>(floats.data()), sizeof floats);
    nezha::send(options);
    return;
  }
  nezha::RecvOptions options(context);
  options.setSource(0);
  options.setOutput(&got, 1);
  nezha::recv(options);
  check(got.value == 2.5 && got.number == 77, "the pair is wrong");
  options.setOutput(static_cast<void*>(bytes.data()), bytes.size());
  nezha::recv(options);
  check(std::equal(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(floats.data())),
        "the bytes are wrong");
  floats = {};
  options.setOutput(nezha::DataType::kFloat32, floats.data(), floats.size());
  nezha::recv(options);
  check(floats == std::array<float, 3>{1, 2, 3}, "the floats are wrong");
}

// The context still works after all of them.
void refused_exchanges(World& world) {
  const auto context = world.join();
  std::vector<uint32_t> values(10);
  const auto refused = [&](const std::string& what, auto call, auto options, auto set) {
    set(options);
    check_mentions(thrown<nezha::InvalidArgument>([&] { call(options); }), what);
  };
  const auto send = [&](const std::string& what, auto set) {
    refused(what, nezha::send, to(context, 1 - world.rank, values), set);
  };
  const auto recv = [&](const std::string& what, auto set) {
    refused(what, nezha::recv, from(context, 1 - world.rank, values), set);
  };
  send("the destination is rank 2 of 2", [](auto& o) { o.setDestination(2); });
  send("the destination is rank -1 of 2", [](auto& o) { o.setDestination(-1); });
  send("null pointer", [](auto& o) { o.template setInput<float>(nullptr, 1); });
  send("more bytes than memory has", [&](auto& o) { o.setInput(values.data(), size_t{1} << 62); });
  send("an unknown type",
       [&](auto& o) { o.setInput(static_cast<nezha::DataType>(99), values.data(), 1); });
  send("below 2^62", [](auto& o) { o.setTag(uint64_t{1} << 62); });
  send("the timeout is 0 ms", [](auto& o) { o.setTimeout(milliseconds(0)); });
  recv("the source is rank 5 of 2", [](auto& o) { o.setSources({0, 5}); });
  recv("rank 1 is a source twice", [](auto& o) { o.setSources({1, 0, 1}); });
  recv("no source", [](auto& o) { o.setSources({}); });
  nezha::SendOptions without_input(context);
  without_input.setDestination(0);
  check_mentions(thrown<nezha::InvalidArgument>([&] { nezha::send(without_input); }),
                 "there is no input");
  nezha::RecvOptions without_output(context);
  without_output.setAnySource();
  check_mentions(thrown<nezha::InvalidArgument>([&] { nezha::recv(without_output); }),
                 "there is no output");
  const nezha::SendOptions without_context(nullptr);
  check_mentions(thrown<nezha::InvalidArgument>([&] { nezha::send(without_context); }),
                 "no context");
  check_works(context, 3);
}

// Both ranks learn both sizes, whether the message waits at the receiver or at the sender.
void check_sizes_differ(World& world, size_t elements) {
  const auto context = world.join();
  std::string text;
  if (world.rank == 0) {
    const auto values = message(0, 0, elements);
    std::vector<uint32_t> answer(1);
    text = thrown<nezha::IoError>([&] {
      nezha::Handle sent = nezha::sendAsync(to(context, 1, values, 9));
      nezha::recv(from(context, 1, answer, 9));
      sent.wait();
    });
    world.tell("heard");
  } else {
    std::vector<uint32_t> values(elements + 1);
    text = thrown<nezha::IoError>([&] { nezha::recv(from(context, 0, values, 9)); });
    world.await("heard");
  }
  const std::string sent = std::to_string(4 * elements), asked = std::to_string(4 * elements + 4);
  check_mentions(text, "rank 0 sends " + sent + " bytes to rank 1 by the tag 9");
  check_mentions(text, "rank 1 has called recv for " + asked + " bytes");
  // A message to oneself must have the size of its receive, too.
  const auto other = world.join_again("other");
  if (world.rank == 1) return world.await("over");
  std::vector<uint32_t> values(10), output(11);
  const nezha::Handle sent_here = nezha::sendAsync(to(other, 0, values));
  text = thrown<nezha::IoError>([&] { nezha::recv(from(other, 0, output)); });
  check_mentions(text, "rank 0 sends 40 bytes to rank 0 by the tag 1");
  check(sent_here.error() != nullptr, "the send has no error");
  world.tell("over");
}

void sizes_differ(World& world) { check_sizes_differ(world, 1000); }
void large_sizes_differ(World& world) { check_sizes_differ(world, kLarge); }
void nothing_and_something_differ(World& world) { check_sizes_differ(world, 0); }

// If a message is shorter than the memory, the rest of the memory does not change.
void check_shorter(World& world, const Context& context, int source, size_t sent, size_t room) {
  std::vector<uint32_t> values(room, 7);
  auto options = source < 0 ? into(context, values, 3) : from(context, source, values, 3);
  if (source < 0) options.setAnySource();
  options.setMayBeShorter(true);
  nezha::Handle received = nezha::recvAsync(options);
  const auto own = message(world.rank, 4, sent);
  const int to_rank = source == world.rank ? world.rank : 1 - world.rank;
  nezha::send(to(context, to_rank, own, 3));
  received.wait();
  check(received.bytes() == 4 * sent, "bytes() is " + std::to_string(received.bytes()));
  const bool has_rest = std::all_of(values.begin() + static_cast<ptrdiff_t>(sent), values.end(),
                                    [](uint32_t value) { return value == 7; });
  check(has_rest, "what is behind the message has changed");
  values.resize(sent);
  check_is(values, to_rank, 4);
}

void shorter_messages(World& world) {
  const auto context = world.join();
  const int other = 1 - world.rank;
  for (const size_t room : {size_t{1}, size_t{1000}, kLarge}) {
    for (const size_t sent : {size_t{0}, room / 2, room - 1, room}) {
      for (const int source : {other, world.rank, -1}) {
        check_shorter(world, context, source, sent, room);
      }
    }
  }
  // A message that is longer is still an error.
  std::vector<uint32_t> values(10);
  auto options = from(context, other, values, 4);
  options.setMayBeShorter(true);
  nezha::Handle received = nezha::recvAsync(options);
  const auto longer = message(world.rank, 5, 11);
  const std::string text = thrown<nezha::IoError>([&] {
    nezha::Handle sent = nezha::sendAsync(to(context, other, longer, 4));
    received.wait();
  });
  check_mentions(text, "has called recv for 40 bytes there; the message may not be longer");
  check(received.bytes() == 0, "a receive that failed has a size");
}

// Nobody sends to a receive: both ranks learn which rank it waited for, and with which tag.
void nothing_sent(World& world) {
  const auto context = world.join();
  check_works(context, 1);
  std::vector<uint32_t> values(10);
  auto options = from(context, 0, values, 7);
  if (world.rank == 1) options.setTimeout(milliseconds(300));
  std::string text;
  if (world.rank == 1) {
    try {
      nezha::recv(options);
    } catch (const nezha::TimeoutError& error) {
      text = error.what();
      check(error.ranks() == std::vector<int>{0}, "the error is about other ranks: " + text);
    }
    world.await("heard");
  } else {
    std::vector<uint32_t> never(10);
    text = thrown<nezha::IoError>([&] { nezha::recv(from(context, 1, never, 8)); });
    world.tell("heard");
  }
  check_mentions(text, "recv from rank 0 (tag 7, 40 bytes) was not complete after 300 ms");
  check_mentions(text, "rank 0 has sent nothing by the tag 7");
}

// The same for a receive from any of several ranks.
void nothing_sent_by_any(World& world) {
  const auto context = world.join();
  check_works(context, 1);
  std::vector<uint32_t> values(10);
  if (world.rank == 1) {
    auto options = into(context, values, 7);
    options.setSources({0, 2, 3});
    options.setTimeout(milliseconds(300));
    std::string text;
    try {
      nezha::recv(options);
    } catch (const nezha::TimeoutError& error) {
      text = error.what();
      check(error.ranks() == std::vector<int>{0, 2, 3}, "the error is about other ranks: " + text);
    }
    check_mentions(text, "recv from any of ranks 0, 2 and 3 (tag 7, 40 bytes)");
    check_mentions(text, "ranks 0, 2 and 3 have sent nothing by the tag 7");
    for (const int rank : {0, 2, 3}) world.await("heard " + std::to_string(rank));
    return;
  }
  const std::string text = thrown<nezha::IoError>([&] { nezha::recv(from(context, 1, values)); });
  check_mentions(text, "ranks 0, 2 and 3 have sent nothing");
  world.tell("heard " + std::to_string(world.rank));
}

// The message is too large to wait at a rank that never asks for it.
void nobody_asks(World& world) {
  const auto context = world.join();
  check_works(context, 1);
  std::string text;
  if (world.rank == 0) {
    const auto values = message(0, 0, kLarge);
    auto options = to(context, 1, values, 7);
    options.setTimeout(milliseconds(500));
    text = thrown<nezha::TimeoutError>([&] { nezha::send(options); });
    world.await("heard");
  } else {
    std::vector<uint32_t> never(10);
    text = thrown<nezha::IoError>([&] { nezha::recv(from(context, 0, never, 8)); });
    world.tell("heard");
  }
  check_mentions(text, "send to rank 1 (tag 7, 8000000 bytes) was not complete after 500 ms");
  check_mentions(text, "rank 1 has not asked for it");
}

// Ranks that a receive waits for leave one after the other. The receive continues while one is
// left.
void sources_that_leave(World& world) {
  auto context = world.join();
  check_works(context, 1);
  std::vector<uint32_t> values(1000);
  if (world.rank != 0) nezha::send(to(context, 0, values, 2));
  if (world.rank == 0) {
    for (const int rank : {1, 2, 3}) nezha::recv(from(context, rank, values, 2));
    auto options = into(context, values);
    options.setSources({1, 2, 3});
    nezha::Handle early = nezha::recvAsync(options);
    world.tell("posted");
    early.wait();
    check(early.source() == 2, "from another rank than 2");
    check_is(values, 2, 1);
    world.await("left 3");
    options.setSources({1, 3});
    check_mentions(thrown<nezha::IoError>([&] { nezha::recv(options); }), "has left");
    return;
  }
  world.await("posted");
  if (world.rank == 2) {
    world.await("left 1");
    world.await("left 3");
    nezha::send(to(context, 0, message(2, 1, 1000)));
    return;
  }
  context.reset();
  world.tell("left " + std::to_string(world.rank));
}

// One of the ranks that a receive waits for calls exit() while its contexts are open.
void source_that_exits(World& world) {
  const auto context = world.join();
  const auto other = world.join_again("other");
  check_works(context, 1);
  check_works(other, 1);
  std::vector<uint32_t> values(10), never(10);
  if (world.rank == 1) {
    world.await("posted");
    std::exit(0);
  }
  if (world.rank == 2) {
    world.await("gone");
    return nezha::send(to(context, 0, message(2, 1, 10)));
  }
  if (world.rank != 0) return world.await("over");
  auto options = into(context, values);
  options.setSources({1, 2});
  nezha::Handle several = nezha::recvAsync(options);
  world.tell("posted");
  check_mentions(thrown<nezha::IoError>([&] { nezha::recv(from(other, 1, never)); }), "has left");
  check(!several.test(), "over, though rank 2 is there");
  world.tell("gone");
  several.wait();
  check(several.source() == 2, "from another rank than 2");
  check_is(values, 2, 1);
  world.tell("over");
}

// The message is for a rank that has closed the context. Another context keeps the ranks connected.
void send_to_one_that_left(World& world) {
  auto context = world.join();
  const auto other = context->dup();
  if (world.rank == 1) {
    context.reset();
    return world.await("heard");
  }
  const auto values = message(0, 0, 10);
  const auto limit = Clock::now() + kPatience;
  std::string text;
  while (text.empty()) {
    check(Clock::now() < limit, "it never hears that rank 1 has left");
    text = thrown<nezha::IoError>([&] { nezha::send(to(context, 1, values)); });
  }
  check_mentions(text, "has left");
  world.tell("heard");
}

// The operations start before the peer's record exists.
void early_exchange(World& world) {
  if (world.rank == 1) world.await("started");
  const auto context = world.join();
  std::vector<std::vector<uint32_t>> sent, got;
  std::vector<nezha::Handle> handles;
  for (int i = 0; i < 5; ++i) {
    sent.push_back(message(world.rank, i, kSizes[i]));
    got.emplace_back(kSizes[i]);
  }
  for (auto& each : sent) handles.push_back(nezha::sendAsync(to(context, 1 - world.rank, each)));
  for (auto& each : got) {
    auto options = into(context, each);
    options.setSources({1 - world.rank});
    handles.push_back(nezha::recvAsync(options));
  }
  if (world.rank == 0) {
    check(!handles.front().test(), "over without rank 1");
    world.tell("started");
  }
  nezha::waitAll(handles);
  for (int i = 0; i < 5; ++i) check_is(got[static_cast<size_t>(i)], 1 - world.rank, i);
}

// Rank 0 has a receive that waits for rank 2 to appear. Operations with other ranks only go ahead,
// except for the receive that must take the second message.
void exchanges_that_pass(World& world) {
  if (world.rank == 3) return;  // three ranks are enough
  if (world.rank == 2) world.await("passed");
  const auto context = world.join();
  std::vector<uint32_t> first(10), second(10), other(10), own(10);
  if (world.rank == 2) return world.await("over");
  if (world.rank == 1) {
    nezha::send(to(context, 0, message(1, 0, 10)));
    for (const int number : {1, 2}) nezha::send(to(context, 0, message(1, number, 10), 7));
    nezha::send(to(context, 0, message(1, 3, 10), 8));
    nezha::recv(from(context, 0, other, 7));
    check_is(other, 0, 1);
    return world.await("over");
  }
  nezha::recv(from(context, 1, other));
  auto several = into(context, first, 7);
  several.setSources({2, 1});
  std::vector<nezha::Handle> waiting;
  waiting.push_back(nezha::recvAsync(several));
  waiting.push_back(nezha::recvAsync(from(context, 1, second, 7)));
  nezha::recv(from(context, 1, other, 8));
  check_is(other, 1, 3);
  nezha::send(to(context, 1, message(0, 1, 10), 7));
  nezha::Handle to_itself = nezha::sendAsync(to(context, 0, other, 8));
  nezha::recv(from(context, 0, own, 8));
  to_itself.wait();
  check_is(own, 1, 3);
  for (const auto& each : waiting) check(!each.test(), "over without rank 2");
  world.tell("passed");
  nezha::waitAll(waiting);
  check_is(first, 1, 1);
  check_is(second, 1, 2);
  world.tell("over");
}

// The context is destroyed while receives of each kind are in flight.
void exchange_and_destroyed_context(World& world) {
  auto context = world.join();
  check_works(context, 1);
  std::vector<uint32_t> one(10), any(10), own(10);
  if (world.rank == 1) {
    world.await("destroyed");
    check_mentions(thrown<nezha::IoError>([&] { nezha::recv(from(context, 0, one)); }), "rank 0");
    return;
  }
  std::vector<nezha::Handle> handles;
  handles.push_back(nezha::recvAsync(from(context, 1, one)));
  {
    auto options = into(context, any);
    options.setAnySource();
    handles.push_back(nezha::recvAsync(options));
  }
  handles.push_back(nezha::sendAsync(to(context, 0, own, 2)));
  context.reset();
  check_mentions(thrown<nezha::IoError>([&] { nezha::waitAll(handles); }), "context was destroyed");
  for (const auto& handle : handles) check(handle.test() && handle.source() == -1, "not over");
  world.tell("destroyed");
}

// Rank 0 cancels a send, and then a receive. Rank 1 starts the other half later, and learns who
// cancelled.
void check_exchange_given_up(World& world, const std::function<void(nezha::Handle)>& give_up) {
  for (const std::string kind : {"send", "recv"}) {
    const auto context = world.join_again(kind);
    check_works(context, 1);
    const int peer = 1 - world.rank;
    const bool is_sender = (kind == "send") == (world.rank == 0);
    auto values = message(world.rank, 1, kLarge);
    const auto start = [&] {
      return is_sender ? nezha::sendAsync(to(context, peer, values))
                       : nezha::recvAsync(from(context, peer, values));
    };
    if (world.rank == 1) {
      world.await(kind + " given up");
      const std::string text = thrown<nezha::IoError>([&] { start().wait(); });
      check_mentions(text, "rank 0");
      check_mentions(text, "cancelled");
      world.tell(kind + " heard");
      continue;
    }
    give_up(start());
    check_is(values, 0, 1);
    world.tell(kind + " given up");
    check_mentions(thrown<nezha::IoError>([&] { start().wait(); }), "cancelled");
    world.await(kind + " heard");
  }
}

void exchange_dropped(World& world) {
  check_exchange_given_up(world, [](const nezha::Handle&) {});
}

void exchange_cancelled(World& world) {
  check_exchange_given_up(world, [](nezha::Handle handle) {
    handle.cancel();
    check(handle.test(), "not over");
    check(handle.error() != nullptr && handle.source() == -1, "no error");
    check_mentions(thrown<nezha::IoError>([&] { handle.wait(); }), "cancelled");
  });
}

// waitAll() throws only after all operations are over, and throws the error of the first in the
// list.
void wait_all(World& world) {
  std::vector<nezha::Handle> none(3);
  nezha::waitAll(none);
  check(nezha::waitAll(none, milliseconds(0)), "nothing is not over");
  const auto context = world.join();
  const auto other = world.join_again("other");
  check_works(context, 1);
  check_works(other, 1);
  std::vector<uint32_t> first(10), second(10), third(10);
  if (world.rank == 1) {
    world.await("impatient");
    nezha::send(to(context, 0, message(1, 1, 10)));
    std::string text = thrown<nezha::IoError>([&] { nezha::recv(from(other, 0, first, 5)); });
    check_mentions(text, "rank 0");
    nezha::send(to(context, 0, message(1, 3, 10)));
    world.await("over");
    return;
  }
  std::vector<nezha::Handle> handles;
  handles.push_back(nezha::recvAsync(from(context, 1, first)));
  auto late = from(other, 1, second);
  late.setTimeout(milliseconds(1000));
  handles.push_back(nezha::recvAsync(late));
  handles.push_back(nezha::recvAsync(from(context, 1, third)));
  check(!nezha::waitAll(handles, milliseconds(20)), "over without rank 1");
  world.tell("impatient");
  check_mentions(thrown<nezha::TimeoutError>([&] { nezha::waitAll(handles); }), "was not complete");
  for (const auto& handle : handles) check(handle.test(), "not over");
  check(handles[0].source() == 1 && handles[1].source() == -1 && handles[2].source() == 1,
        "the sources are wrong");
  check_is(first, 1, 1);
  check_is(third, 1, 3);
  world.tell("over");
}

}  // namespace

Scenarios of_point_to_point() {
  return {{"exchanges-in-order", exchanges_in_order},
          {"any-of-several", any_of_several},
          {"order-of-receives", order_of_receives},
          {"to-oneself", to_oneself},
          {"all-pairs", all_pairs},
          {"beside-collectives", beside_collectives},
          {"exchanged-types", exchanged_types},
          {"refused-exchanges", refused_exchanges},
          {"sizes-differ", sizes_differ},
          {"large-sizes-differ", large_sizes_differ},
          {"shorter-messages", shorter_messages},
          {"nothing-and-something-differ", nothing_and_something_differ},
          {"nothing-sent", nothing_sent},
          {"nothing-sent-by-any", nothing_sent_by_any},
          {"nobody-asks", nobody_asks},
          {"sources-that-leave", sources_that_leave},
          {"source-that-exits", source_that_exits},
          {"send-to-one-that-left", send_to_one_that_left},
          {"early-exchange", early_exchange},
          {"exchanges-that-pass", exchanges_that_pass},
          {"exchange-and-destroyed-context", exchange_and_destroyed_context},
          {"exchange-cancelled", exchange_cancelled},
          {"exchange-dropped", exchange_dropped},
          {"wait-all", wait_all}};
}

}  // namespace nezha::scenarios
