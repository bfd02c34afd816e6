// SPDX-License-Identifier: Apache-2.0
// Prints what --help shows.
#pragma once

#include "bench/measurement/options.h"

namespace nezha::bench {

void print_help(const OptionTable& table, const Dialect& dialect);

}  // namespace nezha::bench
