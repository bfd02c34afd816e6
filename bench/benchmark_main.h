// The main function of the benchmark programs.
#pragma once

#include <functional>
#include <memory>

#include "bench/options.h"
#include "bench/runner.h"

namespace gloo::rendezvous {
class Store;
}

namespace nezha::bench {

// Joins the ranks by means of the library under test.
using Connect = std::function<std::unique_ptr<Runner>(
    const Options& options, const std::shared_ptr<::gloo::rendezvous::Store>& store)>;

// Returns the exit status.
int benchmark_main(int argc, char** argv, const Dialect& dialect, const Connect& connect);

}  // namespace nezha::bench
