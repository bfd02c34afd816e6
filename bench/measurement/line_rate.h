// SPDX-License-Identifier: Apache-2.0
// Finds out how fast a rank's networks are, as far as its host knows.
#pragma once

#include "bench/measurement/options.h"

namespace nezha::bench {

// Returns the sum of this rank's rails' speeds, in Gbit/s: what --line-rate gives, or what the
// kernel says of the interfaces that the rails use, each counted once. Returns 0 if one of them has
// no speed or, like a veth, a meaningless one.
double line_rate(const Options& options);

}  // namespace nezha::bench
