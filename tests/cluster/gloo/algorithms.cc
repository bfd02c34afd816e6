// SPDX-License-Identifier: Apache-2.0
// Gloo's collectives that are classes with bound buffers. Each runs twice with the same buffers.
#include <gloo/allgather_ring.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_local.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/pairwise_exchange.h>
#include <gloo/reduce_scatter.h>

#include <algorithm>
#include <functional>

#include "cluster/gloo/cases.h"
#include "cluster/gloo/data.h"

namespace nezha::gloo_cases {
namespace {

constexpr int kRuns = 2;

template <typename T>
using Maker = std::function<std::shared_ptr<gloo::Algorithm>(const std::shared_ptr<gloo::Context>&,
                                                             const std::vector<T*>&, int count)>;

// The algorithms' buffers, which live until the case has ended on all ranks.
template <typename T>
std::vector<T*> buffers(Rank& rank, size_t number, size_t count) {
  std::vector<T*> pointers;
  auto& all = rank.keep(std::make_shared<std::vector<std::vector<T>>>());
  for (size_t i = 0; i < number; ++i) all.emplace_back(count + 1);  // so that each has an address
  for (auto& each : all) pointers.push_back(each.data());
  return pointers;
}

template <typename T>
void fill(T* buffer, size_t count, const Values<T>& values) {
  for (size_t i = 0; i < count; ++i) buffer[i] = values[i];
}

template <typename T>
T sum_of(const Rank& rank, uint32_t tag, size_t first, size_t number, size_t index) {
  T total = rank.values<T>(tag, first)[index];
  for (size_t of = first + 1; of < first + number; ++of) {
    total = static_cast<T>(total + rank.values<T>(tag, of)[index]);
  }
  return total;
}

// `local`: the sum covers only the buffers of this rank.
template <typename T>
void sum(Rank& rank, const Maker<T>& make, size_t number, size_t count, bool local) {
  const auto context = rank.context();
  const auto pointers = buffers<T>(rank, number, count);
  const auto mine = static_cast<size_t>(rank.rank) * number;
  auto& algorithm = rank.keep(make(context, pointers, static_cast<int>(count)));
  for (int run = 0; run < kRuns; ++run) {
    const uint32_t tag = rank.tag();
    for (size_t i = 0; i < number; ++i) fill(pointers[i], count, rank.values<T>(tag, mine + i));
    algorithm.run();
    const size_t first = local ? mine : 0;
    const size_t all = local ? number : number * static_cast<size_t>(rank.size);
    for (const T* pointer : pointers) {
      check<T>("the sum of run " + std::to_string(run), pointer, count,
               [&](size_t i) { return sum_of<T>(rank, tag, first, all, i); });
    }
  }
}

template <typename T, template <typename> class Algorithm>
Maker<T> maker() {
  return [](const auto& context, const auto& pointers, int count) {
    return std::make_shared<Algorithm<T>>(context, pointers, count);
  };
}

template <typename T>
void add_sums(const std::string& type, size_t number, size_t count, int ranks, Cases& cases) {
  const std::string tail = " " + type + " " + std::to_string(count) +
                           (number > 1 ? " of " + std::to_string(number) : "");
  const std::vector<std::pair<std::string, Maker<T>>> makers = {
      {"ring", maker<T, gloo::AllreduceRing>()},
      {"ring-chunked", maker<T, gloo::AllreduceRingChunked>()},
      {"halving-doubling", maker<T, gloo::AllreduceHalvingDoubling>()},
      {"bcube", maker<T, gloo::AllreduceBcube>()},
      {"local", maker<T, gloo::AllreduceLocal>()}};
  for (const auto& [name, make] : makers) {
    // With more than two ranks, Gloo's class sometimes sums wrongly, also over Gloo's own device.
    if (name == "bcube" && ranks > 2) continue;
    cases.push_back(
        {"class allreduce " + name + tail, [=, local = name == "local", m = make](Rank& rank) {
           sum<T>(rank, m, number, count, local);
         }});
  }
}

void allgather_ring(Rank& rank, size_t number, size_t count) {
  const auto context = rank.context();
  const auto in = buffers<uint32_t>(rank, number, count);
  const size_t total = number * count * static_cast<size_t>(rank.size);
  uint32_t* out = buffers<uint32_t>(rank, 1, total)[0];
  auto& algorithm = rank.keep(std::make_shared<gloo::AllgatherRing<uint32_t>>(
      context, std::vector<const uint32_t*>(in.begin(), in.end()), out, static_cast<int>(count)));
  for (int run = 0; run < kRuns; ++run) {
    const uint32_t tag = rank.tag();
    const auto mine = static_cast<size_t>(rank.rank) * number;
    for (size_t i = 0; i < number; ++i) fill(in[i], count, rank.values<uint32_t>(tag, mine + i));
    algorithm.run();
    check("the blocks of run " + std::to_string(run), out, total,
          [&](size_t i) { return rank.values<uint32_t>(tag, i / count)[i % count]; });
    rank.meet();  // The class lets a rank send data of the next run before others have checked.
  }
}

void broadcast_one_to_all(Rank& rank, int root, size_t number, size_t count) {
  const auto context = rank.context();
  const auto pointers = buffers<uint32_t>(rank, number, count);
  auto& algorithm = rank.keep(std::make_shared<gloo::BroadcastOneToAll<uint32_t>>(
      context, pointers, count, root, static_cast<int>(number) - 1));
  for (int run = 0; run < kRuns; ++run) {
    const uint32_t tag = rank.tag();
    const auto wanted = rank.values<uint32_t>(tag, number - 1);
    const bool is_root = rank.rank == root;
    for (size_t i = 0; i < number; ++i) {
      fill(pointers[i], count, rank.values<uint32_t>(tag, is_root ? i : number));
    }
    algorithm.run();
    for (const uint32_t* pointer : pointers) {
      check("the broadcast of run " + std::to_string(run), pointer, count,
            [&](size_t i) { return wanted[i]; });
    }
  }
}

// How many elements each rank gets: the same number each, or one more for the first ranks.
std::vector<int> shares(int count, int size, bool even) {
  std::vector<int> shares;
  for (int rank = 0, left = count; rank < size; ++rank) {
    const int wanted =
        even ? (count + size - 1) / size : count / size + (rank < count % size ? 1 : 0);
    left -= shares.emplace_back(std::min(wanted, left));
  }
  return shares;
}

void reduce_scatter(Rank& rank, int count, bool even) {
  const auto context = rank.context();
  const auto pointers = buffers<float>(rank, 1, static_cast<size_t>(count));
  const auto counts = shares(count, rank.size, even);
  auto& algorithm = rank.keep(std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
      context, pointers, count, counts));
  const uint32_t tag = rank.tag();
  fill(pointers[0], static_cast<size_t>(count),
       rank.values<float>(tag, static_cast<size_t>(rank.rank)));
  algorithm.run();
  size_t offset = 0;
  for (int of = 0; of < rank.rank; ++of)
    offset += static_cast<size_t>(counts[static_cast<size_t>(of)]);
  check<float>("the reduce-scatter", pointers[0],
               static_cast<size_t>(counts[static_cast<size_t>(rank.rank)]), [&](size_t i) {
                 return sum_of<float>(rank, tag, 0, static_cast<size_t>(rank.size), offset + i);
               });
}

template <typename Algorithm>
void run_twice(Rank& rank) {
  auto& algorithm = rank.keep(std::make_shared<Algorithm>(rank.context()));
  for (int run = 0; run < kRuns; ++run) algorithm.run();
}

void pairwise_exchange(Rank& rank, int bytes) {
  int destinations = 0;
  while ((2 << destinations) <= rank.size) ++destinations;
  auto& algorithm =
      rank.keep(std::make_shared<gloo::PairwiseExchange>(rank.context(), bytes, destinations));
  for (int run = 0; run < kRuns; ++run) algorithm.run();
}

void add_others(const std::string& tail, size_t count, size_t number, Cases& cases) {
  cases.push_back(
      {"class allgather ring" + tail, [=](Rank& rank) { allgather_ring(rank, number, count); }});
  cases.push_back({"class broadcast one to all" + tail, [=](Rank& rank) {
                     broadcast_one_to_all(rank, 0, number, count);
                     broadcast_one_to_all(rank, rank.size - 1, number, count);
                   }});
}

}  // namespace

void add_algorithms(const Options& options, Cases& cases) {
  const bool is_power = (options.size & (options.size - 1)) == 0;
  for (const size_t count :
       {1U, 2U, 3U, 7U, 100U, 1000U, 4099U, 65537U, 262144U, 4194307U, 16777216U}) {
    if (count * sizeof(float) > options.max_bytes) continue;
    const std::string tail = " " + std::to_string(count);
    add_sums<float>("float", 1, count, options.size, cases);
    if (options.size > 1) add_others(tail, count, 1, cases);
    // Gloo's class overwrites data that it has sent. Over Gloo's own device the sums are sometimes
    // wrong if that data does not fit into a socket.
    for (const bool even : {true, false}) {
      if (count > 65537) continue;
      cases.push_back({"class reduce-scatter" + tail + (even ? "" : " uneven"),
                       [=](Rank& rank) { reduce_scatter(rank, static_cast<int>(count), even); }});
    }
    if (count * sizeof(float) >= static_cast<size_t>(options.size) && is_power &&
        options.size > 1) {
      cases.push_back({"class pairwise exchange" + tail, [=](Rank& rank) {
                         pairwise_exchange(rank, static_cast<int>(count * sizeof(float)));
                       }});
    }
  }
  add_sums<float>("float", 3, 1000, options.size, cases);
  add_sums<uint64_t>("uint64", 1, 1021, options.size, cases);
  add_sums<gloo::float16>("float16", 1, 1021, options.size, cases);
  if (options.size > 1) add_others(" 1000 of 3", 1000, 3, cases);
  cases.push_back({"class barrier all to all", run_twice<gloo::BarrierAllToAll>});
  cases.push_back({"class barrier all to one", run_twice<gloo::BarrierAllToOne>});
}

}  // namespace nezha::gloo_cases
