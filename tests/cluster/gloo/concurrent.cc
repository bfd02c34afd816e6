// SPDX-License-Identifier: Apache-2.0
// Concurrent operations of one context, from several threads and in a different order on each rank.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <thread>

#include "cluster/gloo/cases.h"
#include "cluster/gloo/data.h"

namespace nezha::gloo_cases {
namespace {

using Context = std::shared_ptr<gloo::Context>;

void allreduce(const Rank& rank, const Context& context, uint32_t tag, size_t elements) {
  auto data = rank.values<uint32_t>(tag, rank.rank).first(elements);
  gloo::AllreduceOptions options(context);
  options.setOutput(data.data(), elements);
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<uint32_t>));
  options.setAlgorithm(tag % 2 == 0 ? gloo::AllreduceOptions::Algorithm::RING
                                    : gloo::AllreduceOptions::Algorithm::BCUBE);
  options.setTag(tag);
  gloo::allreduce(options);
  check("the allreduce", data, [&](size_t i) {
    uint32_t sum = 0;
    for (int of = 0; of < rank.size; ++of) sum += rank.values<uint32_t>(tag, of)[i];
    return sum;
  });
}

void allgather(const Rank& rank, const Context& context, uint32_t tag, size_t elements) {
  auto in = rank.values<uint32_t>(tag, rank.rank).first(elements);
  std::vector<uint32_t> out(elements * static_cast<size_t>(rank.size));
  gloo::AllgatherOptions options(context);
  options.setInput(in.data(), elements);
  options.setOutput(out.data(), out.size());
  options.setTag(tag);
  gloo::allgather(options);
  check("the allgather", out, [&](size_t i) {
    return rank.values<uint32_t>(tag, static_cast<int>(i / elements))[i % elements];
  });
}

void broadcast(const Rank& rank, const Context& context, uint32_t tag, size_t elements) {
  const int root = static_cast<int>(tag) % rank.size;
  auto data = rank.values<uint32_t>(tag, rank.rank).first(elements);
  gloo::BroadcastOptions options(context);
  options.setOutput(data.data(), elements);
  options.setRoot(root);
  options.setTag(tag);
  gloo::broadcast(options);
  const auto wanted = rank.values<uint32_t>(tag, root);
  check("the broadcast", data, [&](size_t i) { return wanted[i]; });
}

void alltoall(const Rank& rank, const Context& context, uint32_t tag, size_t elements) {
  auto in = rank.values<uint32_t>(tag, rank.rank).first(elements * static_cast<size_t>(rank.size));
  std::vector<uint32_t> out(in.size());
  gloo::AlltoallOptions options(context);
  options.setInput(in.data(), in.size());
  options.setOutput(out.data(), out.size());
  options.setTag(tag);
  gloo::alltoall(options);
  check("the alltoall", out, [&](size_t i) {
    const auto wanted = rank.values<uint32_t>(tag, static_cast<int>(i / elements));
    return wanted[static_cast<size_t>(rank.rank) * elements + i % elements];
  });
}

void run(const Rank& rank, const Context& context, uint32_t tag, size_t elements) {
  switch (tag / 2 % 4) {
    case 0:
      return allreduce(rank, context, tag, elements);
    case 1:
      return allgather(rank, context, tag, elements);
    case 2:
      return broadcast(rank, context, tag, elements);
    default:
      return alltoall(rank, context, tag, elements);
  }
}

// Each thread of a rank runs one of the operations, so that all of them are in flight at once.
void at_once(Rank& rank, int threads, int rounds, size_t elements) {
  const auto context = rank.context();
  std::mutex mutex;
  std::string error;
  std::mt19937 random(rank.options.seed + static_cast<uint32_t>(rank.rank));
  for (int round = 0; round < rounds; ++round) {
    std::vector<uint32_t> tags;
    for (int i = 0; i < threads; ++i) tags.push_back(rank.tag());
    std::shuffle(tags.begin(), tags.end(), random);
    std::vector<std::thread> running;
    for (const uint32_t tag : tags) {
      running.emplace_back([&, tag] {
        try {
          run(rank, context, tag, elements);
        } catch (const std::exception& thrown) {
          const std::lock_guard<std::mutex> lock(mutex);
          error = name_of(thrown);
        }
      });
    }
    for (auto& thread : running) thread.join();
  }
  if (!error.empty()) throw Wrong("of the operations at once: " + error);
}

}  // namespace

void add_concurrent(const Options& options, Cases& cases) {
  (void)options;
  cases.push_back({"at once, small", [](Rank& rank) { at_once(rank, 8, 5, 100); }});
  cases.push_back({"at once, large", [](Rank& rank) { at_once(rank, 4, 2, 30000); }});
}

}  // namespace nezha::gloo_cases
