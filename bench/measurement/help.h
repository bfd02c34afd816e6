// SPDX-License-Identifier: Apache-2.0
// What --help prints.
#pragma once

#include "bench/measurement/options.h"

namespace nezha::bench {

void print_help(const OptionTable& table, const Dialect& dialect);

}  // namespace nezha::bench
