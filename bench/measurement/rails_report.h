// SPDX-License-Identifier: Apache-2.0
// Prints --rails-report: which rail has carried how much, in what state it is, and why the load
// balancer divides messages as it does.
#pragma once

#include "bench/measurement/options.h"
#include "bench/measurement/runner.h"
#include "bench/meeting/meeting.h"

namespace nezha::bench {

// Rank 0 prints what all ranks know. The call is collective, as Meeting's functions are.
void report_rails(const Runner& runner, const Options& options, Meeting& meeting);

}  // namespace nezha::bench
