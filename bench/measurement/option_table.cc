// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/option_table.h"

#include <chrono>

#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "bench/measurement/element_type.h"
#include "bench/measurement/shares.h"
#include "bench/meeting/option_values.h"

namespace nezha::bench {
namespace {

// Returns the text, which must be the name of a type or an operation. Another library may lack what
// nezha has.
std::string one_of_theirs(const std::string& text, const std::vector<std::string>& theirs,
                          const std::vector<std::string>& all, const Dialect& dialect) {
  if (!is_one_of(text, theirs) && is_one_of(text, all)) {
    throw BadValue("the library that " + dialect.program +
                   " measures does not have it (there are " + absl::StrJoin(theirs, ", ") + ")");
  }
  return one_of(text, theirs);
}

Format to_format(const std::string& text) {
  one_of(text, {"table", "json", "csv"});
  return text == "table" ? Format::kTable : text == "json" ? Format::kJson : Format::kCsv;
}

void add_measurement_options(OptionTable& table, Options& o, const Dialect& dialect) {
  table.insert(
      table.end(),
      {{0, "", "", "What is measured", {}},
       {0, "type", "NAME",
        "the elements' type: " + absl::StrJoin(dialect.types, ", ") + " (default: float32)",
        [&](const auto& v) { o.type = one_of_theirs(v, dialect.types, type_names(), dialect); }},
       {0, "operation", "NAME",
        "how allreduce, reduce and reduce_scatter combine them: " +
            absl::StrJoin(dialect.operations, ", ") + " (default: sum)",
        [&](const auto& v) {
          o.operation = one_of_theirs(v, dialect.operations, operation_names(), dialect);
        }},
       {0, "elements", "LIST",
        "element counts, such as 1,64K,16M; K (or k, Ki), M and G are multiples of 1024 (default: 1"
        " to 16M by factors of 4)",
        [&o](const auto& v) { o.elements = to_counts(v); }},
       {0, "warmup-iters", "N", "iterations before the clock runs (default: 5)",
        [&o](const auto& v) { o.warmup_iterations = to_number<size_t>(v, 0); }},
       {0, "iteration-count", "N",
        "iterations of each size (default: what --iteration-time allows)",
        [&o](const auto& v) { o.iteration_count = to_number<size_t>(v, 1); }},
       {0, "iteration-time", "TIME",
        "the time for each size, after the warm-up; at least 3 iterations (default: 2s)",
        [&o](const auto& v) { o.iteration_time = absl::ToChronoNanoseconds(to_duration(v)); }},
       {0, "no-verify", "", "do not check the results", [&o](const auto&) { o.verify = false; }},
       {0, "in-place", "", "the output is the input", [&o](const auto&) { o.in_place = true; }},
       {0, "barrier", "",
        "a barrier before each operation, which does not count in its time; without it a root may"
        " be many operations ahead of the others",
        [&o](const auto&) { o.barrier = true; }},
       {0, "threads", "N", "threads that use one context, each with its own tag (default: 1)",
        [&o](const auto& v) { o.threads = to_number<size_t>(v, 1, 1024); }},
       {0, "start-up", "",
        "each rank first prints, in JSON, what connecting and an operation of the first size took",
        [&o](const auto&) { o.start_up = true; }},
       {0, "format", "NAME", "table, json (one object a line) or csv (default: table)",
        [&o](const auto& v) { o.format = to_format(v); }},
       {0, "trace", "FILE",
        "rank 0 writes a line of CSV for each operation: when it ended (CLOCK_MONOTONIC), its"
        " time, what the load balancer has learned, and what rank 0 has sent",
        [&o](const auto& v) { o.trace = v; }}});
}

void add_policy_options(OptionTable& table, Options& o, const Dialect& dialect) {
  const auto& policies = dialect.policies;
  if (policies.empty()) return;
  table.push_back({0, "policy", "NAME",
                   "how messages are divided: " + absl::StrJoin(policies, ", ") +
                       " (default: " + policies.front() + ", or none with --share)",
                   [&](const auto& v) { o.policy = one_of(v, policies); }});
  table.push_back({0, "table", "FILE",
                   "rank 0's data length table: read if it is there, and written at the end",
                   [&o](const auto& v) { o.table = v; }});
}

// Adds the options of a program whose library knows rails.
void add_options_of_rails_alone(OptionTable& table, Options& o, bool& list_rails) {
  table.push_back({0, "list-rails", "",
                   "show this host's interfaces and other devices, and what auto takes and why",
                   [&](const auto&) { list_rails = true; }});
  table.push_back({0, "ports", "FIRST-LAST",
                   "the ports at which this rank is reached, such as 20000-20100 (default: any)",
                   [&o](const auto& v) { o.ports = to_ports(v); }});
  table.push_back({0, "await-switch", "",
                   "with a single flare rail: first run small operations until the switch has"
                   " carried one",
                   [&o](const auto&) { o.await_switch = true; }});
  table.push_back(
      {0, "rails-report", "",
       "report at the end what each rail of the ranks has carried, whether it is up, and"
       " what the load balancer has decided, when and why (json: in one more object)",
       [&o](const auto&) { o.rails_report = true; }});
}

void add_rail_options(OptionTable& table, Options& o, const Dialect& dialect, bool& list_rails) {
  table.push_back({0, "", "", "How", {}});
  table.push_back({0, dialect.rails_option, dialect.rails_value, dialect.rails_help,
                   [&o](const auto& v) { o.rails = to_names(v); }});
  if (dialect.list_rails != nullptr) add_options_of_rails_alone(table, o, list_rails);
  if (dialect.plans.size() > 1) {
    table.push_back({0, "plan", "NAME",
                     absl::StrJoin(dialect.plans, " or ") + " (default: " + dialect.plans.front() +
                         "; slice with --share)",
                     [&](const auto& v) { o.plan = one_of(v, dialect.plans); }});
  }
  table.push_back({0, "line-rate", "LIST",
                   "the line rate of this rank's networks in Gbit/s: one number for all of them, or"
                   " one for each rail, such as 1,0.4 (default: as the kernel says)",
                   [&o](const auto& v) { o.line_rates = to_numbers(v, false); }});
  table.push_back({0, "share", "LIST",
                   dialect.plans.size() > 1
                       ? "the part of each slice, on any scale, such as 70,30, by the plan slice;"
                         " 0 for a spare rail (default: learned)"
                       : "the part of each device, on any scale, such as 70,30; 0 for one that"
                         " carries nothing (default: equal)",
                   [&o](const auto& v) { o.shares = to_shares(v); }});
  add_policy_options(table, o, dialect);
  const auto& algorithms = dialect.algorithms;
  table.push_back({0, "algorithm", "NAME",
                   absl::StrJoin(algorithms, ", ") + " (default: " + algorithms.front() + ")",
                   [&](const auto& v) { o.algorithm = one_of(v, algorithms); }});
  if (dialect.reproducible_algorithms.empty()) return;
  table.push_back({0, "reproducible", "", "one order of summation for all sizes and algorithms",
                   [&o](const auto&) { o.reproducible = true; }});
}

}  // namespace

OptionTable make_table(Options& o, Asked& asked, const Dialect& dialect) {
  OptionTable table;
  add_rendezvous_options(table, o, "the deadline of each operation (default: 30s)");
  add_measurement_options(table, o, dialect);
  add_rail_options(table, o, dialect, asked.rails);
  table.push_back({'h', "help", "", "this text", [&asked](const auto&) { asked.help = true; }});
  if (!dialect.environment_help.empty()) {
    table.push_back({0, "help-env", "", "the environment variables, which give defaults",
                     [&asked](const auto&) { asked.environment = true; }});
  }
  table.push_back(
      {0, "version", "", "the version", [&asked](const auto&) { asked.version = true; }});
  return table;
}

}  // namespace nezha::bench
