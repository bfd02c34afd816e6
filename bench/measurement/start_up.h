// SPDX-License-Identifier: Apache-2.0
// Measures what a rank needs to join the others and to run its first operation.
#pragma once

#include <memory>

#include "bench/measurement/benchmark_main.h"

namespace nezha::bench {

// Connects by `connect`, runs one operation, and prints what that cost this rank as JSON. The call
// is collective: every rank calls it, and none goes on before all have measured what they hold.
// Throws what `connect`, the operation and Meeting throw.
std::unique_ptr<Runner> measured_start_up(const Dialect& dialect, const Options& options,
                                          Meeting& meeting, const Connect& connect);

}  // namespace nezha::bench
