// SPDX-License-Identifier: Apache-2.0
// The main function of the benchmark programs.
#pragma once

#include <functional>
#include <memory>

#include "bench/measurement/options.h"
#include "bench/measurement/runner.h"
#include "bench/meeting/meeting.h"

namespace nezha::bench {

// Joins the ranks, which have the same options that matter, by means of the library under test.
using Connect = std::function<std::unique_ptr<Runner>(const Options& options, Meeting& meeting)>;

// Returns the exit status.
int benchmark_main(int argc, char** argv, const Dialect& dialect, const Connect& connect);

}  // namespace nezha::bench
