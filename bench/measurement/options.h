// SPDX-License-Identifier: Apache-2.0
// The command line that the benchmark programs share; it follows Gloo's benchmark program.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/measurement/training_trace.h"
#include "bench/meeting/rendezvous.h"

namespace nezha::bench {

enum class Format { kTable, kJson, kCsv };

// The differences between the benchmark programs.
struct Dialect {
  std::string program;
  // Says in the help what the program measures.
  std::string about;
  // The known collectives; allreduce is one.
  std::vector<std::string> collectives;
  // The names of the element types and operations that the library has.
  std::vector<std::string> types;
  std::vector<std::string> operations;
  // The option that lists the rails: its name, what the help calls its value, and its help.
  std::string rails_option;
  std::string rails_value;
  std::string rails_help;
  // The known names; the first is the default. A program with a single plan has no --plan.
  std::vector<std::string> algorithms;
  std::vector<std::string> plans;
  // The algorithms that --reproducible goes with; a program without any has no such option.
  std::vector<std::string> reproducible_algorithms = {};
  std::vector<std::string> policies = {};  // none: the program has neither --policy nor --table
  // Prints what --list-rails shows. It is null if the program has no such option, and neither
  // --ports nor --await-switch nor --rails-report.
  void (*list_rails)() = nullptr;
  // The program replays traces, because its library has operations in the background.
  bool replays = false;
  // The text of --help-env for a library whose environment variables give defaults; empty for
  // others.
  std::string environment_help = {};
};

struct Options : Rendezvous {
  std::string collective;
  // The trace that is replayed, and the steps in it; empty: none is.
  std::string replay;
  std::vector<TracedStep> steps;
  std::string type;       // the elements' type; empty: the collective has none
  std::string operation;  // empty: the collective combines nothing
  std::vector<size_t> elements;
  bool in_place = false;
  bool barrier = false;  // a barrier precedes each operation
  bool verify = true;
  size_t warmup_iterations = 5;
  // The number of iterations; 0: as many as fit into `iteration_time`.
  size_t iteration_count = 0;
  std::chrono::nanoseconds iteration_time = std::chrono::seconds(2);
  size_t threads = 1;
  bool start_up = false;

  std::vector<std::string> rails;
  std::string ports;  // empty: any
  // The line rates in Gbit/s, of each of this rank's rails or of all of them together; empty: not
  // given.
  std::vector<double> line_rates;
  // A rank other than 0 that has no plan, shares, policy or algorithm takes rank 0's.
  std::string plan;
  // The part of each message that each rail but flare's carries, on any scale; empty: not given.
  std::vector<double> shares;
  std::string policy;
  std::string table;
  std::string algorithm;
  bool reproducible = false;
  bool await_switch = false;

  Format format = Format::kTable;
  std::string trace;  // rank 0's file; empty: none
  bool rails_report = false;
};

// Reads the command line, and completes it from the environment (take_from_environment). Makes the
// shared path, if one is given. Returns nothing if the user asked for the help, the version or a
// list of rails, which has then been printed. Throws UsageError.
std::optional<Options> parse_options(int argc, char** argv, const Dialect& dialect);

}  // namespace nezha::bench
