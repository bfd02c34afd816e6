// SPDX-License-Identifier: Apache-2.0
// The cases, each of which every rank runs at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cluster/gloo/options.h"
#include "cluster/gloo/rank.h"

namespace nezha::gloo_cases {

struct Case {
  std::string name;
  std::function<void(Rank&)> run;  // throws, or notes what happens, or neither: then all is well
};

using Cases = std::vector<Case>;

void add_collectives(const Options& options, Cases& cases);  // functions with options
void add_algorithms(const Options& options, Cases& cases);   // classes on bound buffers
void add_unbound(const Options& options, Cases& cases);
void add_any_source(const Options& options, Cases& cases);
void add_waits(const Options& options, Cases& cases);  // aborts and timeouts
void add_bound(const Options& options, Cases& cases);
void add_contexts(const Options& options, Cases& cases);
void add_concurrent(const Options& options, Cases& cases);

// Operations one after the other until a file is there. Returns the exit status.
int run_load(Rank& rank);

}  // namespace nezha::gloo_cases
