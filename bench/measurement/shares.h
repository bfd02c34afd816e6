// SPDX-License-Identifier: Apache-2.0
// The shares of a message that rails are given.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/measurement/options.h"

namespace nezha::bench {

// These convert shares to text as the command line has it, and back. They throw BadValue.
std::string to_text(const std::vector<double>& shares);
std::vector<double> to_shares(const std::string& text);

// Returns whether the context finds rails by itself, so that it alone knows how many there are.
bool has_auto(const std::vector<std::string>& rails);

// Returns the number of slices: a flare rail has none, and alone it has one rail of links beside
// it.
size_t slices_of(const std::vector<std::string>& rails);

// Returns whether there is a share for each slice, or the number of slices is not known.
bool fit(const std::vector<double>& shares, const std::vector<std::string>& rails);

// Returns the shares in words; if there are none, "learned", a 1 for each rail, or "not given".
std::string shares_text(const Options& options);

}  // namespace nezha::bench
