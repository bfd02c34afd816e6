// SPDX-License-Identifier: Apache-2.0
// Checks whether options fit each other. All functions throw UsageError.
#pragma once

#include "bench/measurement/options.h"

namespace nezha::bench {

// Refuses options of the command line that the collective does not have, or the replay of a trace.
void check_for_collective(const Options& o, const Dialect& dialect);

// Refuses completed options that do not go together.
void check_together(const Options& o, const Dialect& dialect);

}  // namespace nezha::bench
