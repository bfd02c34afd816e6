// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/option_defaults.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "bench/measurement/shape.h"

namespace nezha::bench {
namespace {

// Takes from the environment what the command line has not given and the library would take, so
// that reports and comparisons of the ranks' options have it, too.
void take_from_library_environment(const OptionTable& table, const Dialect& dialect,
                                   const Options& o) {
  struct Variable {
    const char* name;
    std::string option;
    bool is_given;
  };
  const Variable variables[] = {{"NEZHA_RAILS", dialect.rails_option, !o.rails.empty()},
                                {"NEZHA_PORTS", "ports", !o.ports.empty()},
                                {"NEZHA_TIMEOUT", "timeout", o.timeout.count() > 0},
                                {"NEZHA_PLAN", "plan", !o.plan.empty()},
                                {"NEZHA_SHARES", "share", !o.shares.empty()},
                                {"NEZHA_POLICY", "policy", !o.policy.empty()},
                                {"NEZHA_ALGORITHM", "algorithm", !o.algorithm.empty()}};
  for (const Variable& variable : variables) {
    if (variable.is_given) continue;
    const auto option = std::find_if(
        table.begin(), table.end(), [&](const auto& each) { return each.name == variable.option; });
    from_environment(variable.name, option->set);
  }
}

void take_defaults_of_collective(Options& o) {
  const bool is_barrier = o.collective == "barrier";
  if (kind_of(o.collective).reduces && o.operation.empty()) o.operation = "sum";
  if (is_barrier) o.elements = {0};
  if (!is_barrier && o.type.empty()) o.type = "float32";
  if (o.elements.empty()) {
    for (size_t n = 1; n <= 16 * 1024 * 1024; n *= 4) o.elements.push_back(n);
  }
}

void take_defaults_of_program(const Dialect& dialect, Options& o) {
  if (o.timeout.count() == 0) o.timeout = std::chrono::seconds(30);
  if (o.rank != 0) return;  // the others take rank 0's
  if (o.plan.empty()) o.plan = o.shares.empty() ? dialect.plans.front() : "slice";
  if (o.policy.empty() && !dialect.policies.empty()) {
    o.policy = o.shares.empty() ? dialect.policies.front() : "none";
  }
  if (o.algorithm.empty()) o.algorithm = dialect.algorithms.front();
}

}  // namespace

void take_defaults(const OptionTable& table, const Dialect& dialect, Options& o) {
  if (!dialect.environment_help.empty()) take_from_library_environment(table, dialect, o);
  take_from_environment(o);
  take_defaults_of_collective(o);
  take_defaults_of_program(dialect, o);
}

}  // namespace nezha::bench
