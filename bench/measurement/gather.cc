// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/gather.h"

#include <cstddef>
#include <cstdint>

namespace nezha::bench {

// Uses the float32 sum, which every program has: each rank adds its numbers to zeros, in a place of
// its own. A double takes two floats there, because the 24 bits of one are too few for a byte
// count.
std::vector<std::vector<double>> gather(Runner& runner, const Options& options,
                                        const std::vector<double>& values) {
  const size_t count = values.size();
  const auto ranks = static_cast<size_t>(options.size);
  const auto place = [count](size_t rank, size_t i) { return 2 * (rank * count + i); };

  std::vector<float> floats(2 * ranks * count);
  for (size_t i = 0; i < count; ++i) {
    float* pair = &floats[place(static_cast<size_t>(options.rank), i)];
    pair[0] = static_cast<float>(values[i]);
    pair[1] = static_cast<float>(values[i] - static_cast<double>(pair[0]));
  }
  const auto tag = static_cast<uint32_t>(options.threads);  // the threads have the tags below
  Request request{"allreduce"};
  request.input = request.output = floats.data();
  request.elements = floats.size();
  request.tag = tag;
  runner.prepare(request)->run();

  std::vector<std::vector<double>> all(ranks, std::vector<double>(count));
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < count; ++i) {
      const float* pair = &floats[place(rank, i)];
      all[rank][i] = static_cast<double>(pair[0]) + static_cast<double>(pair[1]);
    }
  }
  return all;
}

}  // namespace nezha::bench
