// SPDX-License-Identifier: Apache-2.0
// The Gloo calls that Horovod makes; each result is compared with the ranks' inputs.
#pragma once

#include <gloo/context.h>

#include <cstddef>
#include <memory>
#include <string>

using Context = std::shared_ptr<gloo::Context>;

// Makes all calls except those below. All functions here throw if a result is wrong.
void check_all_calls(const Context& context);

// How Horovod's ranks agree: returns true if `is_so` is true on any rank.
bool any_rank(const Context& context, bool is_so);

// Sums floats over all ranks.
void check_large_sum(const Context& context, size_t elements);

// The results of reductions of NaNs, one word of hexadecimal digits each. The words are for Gloo's
// sum, product, minimum and maximum of float, a sum of the program's own, and Gloo's sums of double
// and float16. A function that is called keeps the bits of a NaN; nezha's operations do not.
std::string sums_of_no_numbers(const Context& context);

// Checks the ids of the context's ranks; `expected` has a space after each id.
void check_members(const Context& context, int id, const std::string& expected);
