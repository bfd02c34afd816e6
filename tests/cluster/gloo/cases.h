// SPDX-License-Identifier: Apache-2.0
// The cases. All ranks run each case at the same time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cluster/gloo/options.h"
#include "cluster/gloo/rank.h"

namespace nezha::gloo_cases {

struct Case {
  std::string name;
  std::function<void(Rank&)> run;  // may throw or note something; if it does neither, all is well
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

// Runs one operation after another until a file exists. Returns the exit status.
int run_load(Rank& rank);

}  // namespace nezha::gloo_cases
