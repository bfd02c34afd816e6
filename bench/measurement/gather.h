// SPDX-License-Identifier: Apache-2.0
// Gives every rank the numbers of every rank.
#pragma once

#include <vector>

#include "bench/measurement/options.h"
#include "bench/measurement/runner.h"

namespace nezha::bench {

// Returns every rank's `values`, of which there must be as many on every rank: result[rank][i].
// This is also a barrier: it returns after every rank has called it. The values are exact for whole
// numbers below 2^48.
std::vector<std::vector<double>> gather(Runner& runner, const Options& options,
                                        const std::vector<double>& values);

}  // namespace nezha::bench
