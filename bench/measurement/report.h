// SPDX-License-Identifier: Apache-2.0
// The results on standard output: a table for people, JSON Lines or CSV for programs.
#pragma once

#include <string>
#include <vector>

#include "bench/measurement/measure.h"
#include "bench/measurement/options.h"

namespace nezha::bench {

// Writes all that has been printed. Throws if any of it could not be written.
void flush_output();

// What comes before the first row. `rails`: the names of those that any rank has.
void print_header(const Dialect& dialect, const Options& options,
                  const std::vector<std::string>& rails);

// One size, printed at once.
void print_row(const Dialect& dialect, const Options& options, const Measurement& result);

// What the columns of a table mean; nothing of other formats. `last`: the last row.
void print_legend(const Dialect& dialect, const Options& options, const Measurement& last);

}  // namespace nezha::bench
