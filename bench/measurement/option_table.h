// SPDX-License-Identifier: Apache-2.0
// The options that the benchmark programs have.
#pragma once

#include "bench/measurement/options.h"

namespace nezha::bench {

// The things that the user asks for in place of a measurement.
struct Asked {
  bool help = false;
  bool environment = false;
  bool version = false;
  bool rails = false;
};

// The table refers to all three.
OptionTable make_table(Options& o, Asked& asked, const Dialect& dialect);

}  // namespace nezha::bench
