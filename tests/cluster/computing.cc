// SPDX-License-Identifier: Apache-2.0
// One rank of a job in which a rank returns from a collective at once and then computes, without
// calling nezha, before the others have received what it sent.
//
// `computing FOLDER RAIL,... broadcast|reduce`, with RANK and SIZE in the environment. When the
// test creates "go" in FOLDER, the ranks enter the collective, in which the last rank need not wait
// for anything. The last rank computes until the test creates "enough". Then all ranks meet once
// more.
//
// Events: "ready", "done" (with the seconds that the collective took) and "met" (with the failures
// of links).
#include <gloo/rendezvous/file_store.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cluster/events.h"
#include "nezha/allreduce.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/context.h"
#include "nezha/reduce.h"

namespace {

using nezha::events::Clock;
using nezha::events::emit;
using nezha::events::error_members;
using nezha::events::member;
using nezha::events::seconds_since;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{30'000};
// The vector uses both rails, but is so short that the sender keeps a copy and returns.
constexpr size_t kElements = 50'000;

void await_file(const std::string& path) {
  const auto limit = Clock::now() + kPatience;
  while (!std::filesystem::exists(path)) {
    if (Clock::now() > limit) throw std::runtime_error("there never was " + path);
    std::this_thread::sleep_for(milliseconds(2));
  }
}

uint64_t failures(const nezha::Context& context) {
  uint64_t sum = 0;
  for (const auto& rail : context.rails()) sum += rail.failures;
  return sum;
}

void require(bool holds) {
  if (!holds) throw std::runtime_error("a wrong result");
}

void broadcast(const std::shared_ptr<nezha::Context>& context, int root) {
  std::vector<float> vector(kElements, context->rank() == root ? 7.0F : 0.0F);
  nezha::BroadcastOptions options(context);
  options.setOutput(vector.data(), vector.size());
  options.setRoot(root);
  nezha::broadcast(options);
  for (const float value : vector) require(value == 7.0F);
}

void reduce(const std::shared_ptr<nezha::Context>& context, int root) {
  std::vector<float> vector(kElements, static_cast<float>(context->rank()));
  std::vector<float> sum(kElements);
  nezha::ReduceOptions options(context);
  options.setInput(vector.data(), vector.size());
  options.setOutput(sum.data(), sum.size());
  options.setRoot(root);
  nezha::reduce(options);
  const auto size = static_cast<float>(context->size());
  for (const float value : sum) {
    require(context->rank() != root || value == size * (size - 1) / 2);
  }
}

void run(const std::string& folder, const std::string& rails, const std::string& collective) {
  nezha::ContextOptions options;
  std::istringstream stream(rails);
  for (std::string rail; std::getline(stream, rail, ',');) options.rails.push_back(rail);
  options.timeout = kPatience;
  options.rank = std::atoi(std::getenv("RANK"));
  options.size = std::atoi(std::getenv("SIZE"));
  auto store = std::make_shared<gloo::rendezvous::FileStore>(folder);
  const auto context = nezha::Context::create(store, options);
  // This allreduce connects all pairs of ranks.
  std::vector<float> vector(kElements);
  nezha::AllreduceOptions all(context);
  all.setOutput(vector.data(), vector.size());
  all.setAlgorithm(nezha::Algorithm::kDirect);
  nezha::allreduce(all);
  emit("ready", "");

  await_file(folder + "/go");
  const int last = context->size() - 1;
  const auto start = Clock::now();
  if (collective == "broadcast") {
    broadcast(context, last);
  } else {
    reduce(context, 0);
  }
  emit("done", member("seconds", seconds_since(start)));
  if (context->rank() == last) await_file(folder + "/enough");
  nezha::barrier(nezha::BarrierOptions(context));
  emit("met", member("failures", static_cast<double>(failures(*context))));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    run(argv[1], argv[2], argv[3]);
    return 0;
  } catch (const std::exception& error) {
    emit("error", error_members(error));
    return 1;
  }
}
