// SPDX-License-Identifier: Apache-2.0
// The results on standard output: a table for people, JSON Lines or CSV for programs.
#pragma once

#include <string>
#include <vector>

#include "bench/measurement/measure.h"
#include "bench/measurement/options.h"

namespace nezha::bench {

// Flushes the output. Throws if any of it could not be written.
void flush_output();

// Prints what comes before the first row. `rails` are the names of the rails of all ranks.
void print_header(const Dialect& dialect, const Options& options,
                  const std::vector<std::string>& rails);

// Prints the row of one size at once.
void print_row(const Dialect& dialect, const Options& options, const Measurement& result);

// Prints what a table's columns mean, and nothing for other formats. `last` is the last row.
void print_legend(const Dialect& dialect, const Options& options, const Measurement& last);

}  // namespace nezha::bench
