// SPDX-License-Identifier: Apache-2.0
// Sets what a rank takes for the options that its command line does not have.
#pragma once

#include "bench/measurement/options.h"

namespace nezha::bench {

// Completes the options: from the environment, then by the program's own defaults. Throws
// UsageError if the environment has a bad value.
void take_defaults(const OptionTable& table, const Dialect& dialect, Options& o);

}  // namespace nezha::bench
