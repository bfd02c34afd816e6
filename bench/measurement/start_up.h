// SPDX-License-Identifier: Apache-2.0
// What it takes a rank to join the others, and to run its first operation.
#pragma once

#include <memory>

#include "bench/measurement/benchmark_main.h"

namespace nezha::bench {

// Connects as `connect` does and runs one operation, by this rank, and prints what that took as
// JSON. All ranks call it, and none goes on before all have looked at what they hold. Throws what
// `connect` and the operation do, and what Meeting does.
std::unique_ptr<Runner> measured_start_up(const Dialect& dialect, const Options& options,
                                          Meeting& meeting, const Connect& connect);

}  // namespace nezha::bench
