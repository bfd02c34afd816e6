// SPDX-License-Identifier: Apache-2.0
// The main function of the benchmark programs.
#pragma once

#include <functional>
#include <memory>

#include "bench/measurement/options.h"
#include "bench/measurement/runner.h"
#include "bench/meeting/meeting.h"

namespace nezha::bench {

// Joins the ranks by the library under test. All ranks have the same options, as far as they
// matter.
using Connect = std::function<std::unique_ptr<Runner>(const Options& options, Meeting& meeting)>;

// Returns the exit status.
int benchmark_main(int argc, char** argv, const Dialect& dialect, const Connect& connect);

}  // namespace nezha::bench
