// SPDX-License-Identifier: Apache-2.0
// Runs one operation after another, while a test disturbs the ranks or the network.
//
// Events: "start" and "done" of an operation, "wrong" (a wrong result), "error" (the exception, and
// how many seconds after the operation's start), "end". Exit status: 0 after "end", else 1.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>

#include <chrono>
#include <filesystem>
#include <map>

#include "cluster/events.h"
#include "cluster/gloo/cases.h"
#include "cluster/gloo/data.h"

namespace nezha::gloo_cases {
namespace {

using nezha::events::emit;
using nezha::events::json_string;
using nezha::events::member;

void check_sum(const Rank& rank, uint32_t tag, const std::vector<float>& data) {
  check("the sum", data, [&](size_t i) {
    float sum = 0;
    for (int of = 0; of < rank.size; ++of) sum += rank.values<float>(tag, of)[i];
    return sum;
  });
}

void allreduce(Rank& rank, gloo::AllreduceOptions::Algorithm algorithm) {
  const uint32_t tag = rank.tag();
  auto data = rank.values<float>(tag, rank.rank).first(rank.options.elements);
  gloo::AllreduceOptions options(rank.context());
  options.setAlgorithm(algorithm);
  options.setOutput(data.data(), data.size());
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  options.setTag(tag);
  gloo::allreduce(options);
  check_sum(rank, tag, data);
}

void halving_doubling(Rank& rank) {
  const uint32_t tag = rank.tag();
  auto data = rank.values<float>(tag, rank.rank).first(rank.options.elements);
  gloo::AllreduceHalvingDoubling<float> algorithm(rank.context(), {data.data()},
                                                  static_cast<int>(data.size()));
  algorithm.run();
  check_sum(rank, tag, data);
}

void alltoall(Rank& rank) {
  const uint32_t tag = rank.tag();
  const size_t block = rank.options.elements / static_cast<size_t>(rank.size);
  auto in = rank.values<float>(tag, rank.rank).first(block * static_cast<size_t>(rank.size));
  std::vector<float> out(in.size());
  gloo::AlltoallOptions options(rank.context());
  options.setInput(in.data(), in.size());
  options.setOutput(out.data(), out.size());
  options.setTag(tag);
  gloo::alltoall(options);
  check("the blocks", out, [&](size_t i) {
    const auto wanted = rank.values<float>(tag, static_cast<int>(i / block));
    return wanted[static_cast<size_t>(rank.rank) * block + i % block];
  });
}

void broadcast(Rank& rank, std::vector<float>& data, int root) {
  gloo::BroadcastOptions options(rank.context());
  options.setOutput(data.data(), data.size());
  options.setRoot(root);
  options.setTag(rank.tag());
  gloo::broadcast(options);
}

void checked_broadcast(Rank& rank) {
  const uint32_t tag = rank.tag();
  const int root = static_cast<int>(tag) % rank.size;
  auto data = rank.values<float>(tag, rank.rank).first(rank.options.elements);
  broadcast(rank, data, root);
  const auto wanted = rank.values<float>(tag, root);
  check("the broadcast", data, [&](size_t i) { return wanted[i]; });
}

using Algorithm = gloo::AllreduceOptions::Algorithm;

const std::map<std::string, void (*)(Rank&)> kOperations = {
    {"ring", [](Rank& rank) { allreduce(rank, Algorithm::RING); }},
    {"bcube", [](Rank& rank) { allreduce(rank, Algorithm::BCUBE); }},
    {"alltoall", alltoall},
    {"broadcast", checked_broadcast},
    {"halving-doubling", halving_doubling}};

// Rank 0 looks for the file and tells the other ranks.
bool goes_on(Rank& rank) {
  std::vector<float> data(1, std::filesystem::exists(rank.options.load) ? 0.0F : 1.0F);
  broadcast(rank, data, 0);
  return data[0] > 0;
}

}  // namespace

int run_load(Rank& rank) {
  auto start = nezha::events::Clock::now();
  try {
    rank.context();
    for (size_t number = 0;; ++number) {
      start = nezha::events::Clock::now();
      if (!goes_on(rank)) break;
      const std::string which = member("operation", static_cast<double>(number));
      emit("start", which);
      kOperations.at(rank.options.operations[number % rank.options.operations.size()])(rank);
      emit("done", which);
    }
    emit("end", "");
    return 0;
  } catch (const Wrong& error) {
    emit("wrong", member("what", json_string(error.what())));
  } catch (const std::exception& error) {
    emit("error", member("type", json_string(name_of(error))) +
                      member("what", json_string(error.what())) +
                      member("seconds", nezha::events::seconds_since(start)));
  }
  return 1;
}

}  // namespace nezha::gloo_cases
