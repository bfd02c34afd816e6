// SPDX-License-Identifier: Apache-2.0
// Numbers that every rank gets from every rank.
#pragma once

#include <vector>

#include "bench/measurement/options.h"
#include "bench/measurement/runner.h"

namespace nezha::bench {

// Every rank's `values`, of which there must be as many on every rank: result[rank][i]. Also a
// barrier: returns after every rank has called it. Exact for whole numbers below 2^48.
std::vector<std::vector<double>> gather(Runner& runner, const Options& options,
                                        const std::vector<double>& values);

}  // namespace nezha::bench
