// SPDX-License-Identifier: Apache-2.0
// Sorts numbers over all ranks by sampling, with six collectives. Rank 0 has the numbers at the
// beginning, and the sorted numbers at the end. Three ranks on one machine, over its loopback
// device:
//
//   mkdir /tmp/meeting
//   for rank in 0 1 2; do ./sample_sort $rank 3 /tmp/meeting tcp:lo & done; wait
//
// Ranks on several machines share the directory (NFS, say), a new one for each run, and name one
// rail per network: `./sample_sort 0 3 DIRECTORY tcp:eth0 tcp:eth1`.
#include <gloo/rendezvous/file_store.h>
#include <nezha/nezha.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace {

using Context = std::shared_ptr<nezha::Context>;
using Numbers = std::vector<uint64_t>;
using Counts = std::vector<size_t>;

constexpr size_t kNumbersPerRank = 100'000;

Numbers numbers_to_sort(size_t count) {
  Numbers numbers(count);
  uint64_t state = 1;
  for (uint64_t& number : numbers) number = state = state * 6364136223846793005U + 1;
  return numbers;
}

// Each rank gets an equal part of the numbers.
Numbers scatter_from_root(const Context& context, const Numbers& all) {
  Numbers own(kNumbersPerRank);
  nezha::ScatterOptions options(context);
  options.setRoot(0);
  if (context->rank() == 0) options.setInput(all.data(), all.size());
  options.setOutput(own.data(), own.size());
  nezha::scatter(options);
  return own;
}

// Each of the n ranks contributes n of its sorted numbers as samples. n-1 of these n² samples are
// the splitters, which divide the numbers among the ranks.
Numbers choose_splitters(const Context& context, const Numbers& own) {
  const auto n = static_cast<size_t>(context->size());
  Numbers samples(n), all(n * n), splitters;
  for (size_t i = 0; i < n; ++i) samples[i] = own[i * own.size() / n];
  nezha::AllgatherOptions options(context);
  options.setInput(samples.data(), samples.size());
  options.setOutput(all.data(), all.size());
  nezha::allgather(options);
  std::sort(all.begin(), all.end());
  for (size_t i = 1; i < n; ++i) splitters.push_back(all[i * n]);
  return splitters;
}

Counts exchange_counts(const Context& context, const Counts& sent) {
  Counts received(sent.size());
  nezha::AlltoallOptions options(context);
  options.setInput(sent.data(), sent.size());
  options.setOutput(received.data(), received.size());
  nezha::alltoall(options);
  return received;
}

// Rank r gets all numbers from splitter r-1 on that are below splitter r.
Numbers exchange(const Context& context, const Numbers& own, const Numbers& splitters) {
  Counts sent;
  auto begin = own.begin();
  for (const uint64_t splitter : splitters) {
    const auto end = std::lower_bound(begin, own.end(), splitter);
    sent.push_back(static_cast<size_t>(end - begin));
    begin = end;
  }
  sent.push_back(static_cast<size_t>(own.end() - begin));
  const Counts received = exchange_counts(context, sent);
  Numbers numbers(std::accumulate(received.begin(), received.end(), size_t{0}));
  nezha::AlltoallvOptions options(context);
  options.setInput(own.data(), sent);
  options.setOutput(numbers.data(), received);
  nezha::alltoallv(options);
  return numbers;
}

Numbers gather_at_root(const Context& context, const Numbers& own) {
  Counts counts(static_cast<size_t>(context->size()));
  const size_t count = own.size();
  nezha::AllgatherOptions lengths(context);
  lengths.setInput(&count, 1);
  lengths.setOutput(counts.data(), counts.size());
  nezha::allgather(lengths);
  const bool is_root = context->rank() == 0;
  Numbers all(is_root ? std::accumulate(counts.begin(), counts.end(), size_t{0}) : 0);
  nezha::GathervOptions options(context);
  options.setRoot(0);
  options.setInput(own.data(), own.size());
  if (is_root) options.setOutput(all.data(), counts);
  nezha::gatherv(options);
  return all;
}

uint64_t largest_part(const Context& context, uint64_t numbers) {
  nezha::AllreduceOptions options(context);
  options.setOperation(nezha::ReduceOperation::kMax);
  options.setOutput(&numbers, 1);
  nezha::allreduce(options);
  return numbers;
}

int sort_numbers(const Context& context) {
  const bool is_root = context->rank() == 0;
  Numbers all;
  if (is_root) all = numbers_to_sort(kNumbersPerRank * static_cast<size_t>(context->size()));
  Numbers own = scatter_from_root(context, all);
  std::sort(own.begin(), own.end());
  own = exchange(context, own, choose_splitters(context, own));
  std::sort(own.begin(), own.end());
  const uint64_t largest = largest_part(context, own.size());
  const Numbers sorted = gather_at_root(context, own);
  if (!is_root) return 0;
  std::sort(all.begin(), all.end());
  if (sorted != all) {
    std::fprintf(stderr, "the order is wrong\n");
    return 1;
  }
  std::printf("%zu numbers are sorted; the largest part had %llu of them\n", sorted.size(),
              static_cast<unsigned long long>(largest));
  return 0;
}

int run(int rank, int size, const char* directory, std::vector<std::string> rails) {
  nezha::ContextOptions options;
  options.rank = rank;
  options.size = size;
  options.rails = std::move(rails);
  auto store = std::make_shared<gloo::rendezvous::FileStore>(directory);
  return sort_numbers(nezha::Context::create(store, options));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s RANK SIZE DIRECTORY RAIL...\n", argv[0]);
    return 2;
  }
  try {
    return run(std::atoi(argv[1]), std::atoi(argv[2]), argv[3], {argv + 4, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
