// SPDX-License-Identifier: Apache-2.0
// The calls of Gloo's that Horovod makes, each checked against what the ranks' inputs give.
#pragma once

#include <gloo/context.h>

#include <cstddef>
#include <memory>
#include <string>

using Context = std::shared_ptr<gloo::Context>;

// All of them but those below. This and the others throw where a result is wrong.
void check_all_calls(const Context& context);

// How Horovod's ranks agree on what to do: true if any of them says so.
bool any_rank(const Context& context, bool is_so);

// The sum of floats of all ranks.
void check_large_sum(const Context& context, size_t elements);

// What reductions make of values that are not a number: one word of hexadecimal digits for each. A
// function that is called keeps their bits, and nezha's operations do not. The words are of Gloo's
// sum, product, minimum and maximum of float, of a sum of the program's own, and of Gloo's sums of
// double and float16.
std::string sums_of_no_numbers(const Context& context);

// The ranks of the context have these ids, each of them followed by a space.
void check_members(const Context& context, int id, const std::string& expected);
