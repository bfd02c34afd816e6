// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/options.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "bench/measurement/element_type.h"
#include "bench/measurement/shape.h"
#include "common/shares.h"
#include "nezha/version.h"

namespace nezha::bench {
namespace {

std::vector<double> to_numbers(const std::string& text, bool may_be_0) {
  std::vector<double> numbers;
  for (const auto part : absl::StrSplit(text, ',')) {
    double number = 0;
    const bool is_number = absl::SimpleAtod(part, &number) && std::isfinite(number);
    if (!is_number || number < 0 || (number == 0 && !may_be_0)) {
      throw BadValue(absl::StrCat("'", part, "' is not a ",
                                  may_be_0 ? "number of 0 or more" : "positive number"));
    }
    numbers.push_back(std::abs(number));
  }
  return numbers;
}

// A count such as 65536, 64K, 16m or 1Gi: K, M and G are multiples of 1024, in either case.
size_t to_count(const std::string& text) {
  constexpr size_t kMost = size_t{1} << 40;
  absl::string_view digits = text;
  const bool has_i = absl::ConsumeSuffix(&digits, "i");
  const auto letter = digits.empty() ? '\0' : absl::ascii_toupper(digits.back());
  size_t unit = 1;
  if (letter == 'K') unit = size_t{1} << 10;
  if (letter == 'M') unit = size_t{1} << 20;
  if (letter == 'G') unit = size_t{1} << 30;
  if (unit > 1) digits.remove_suffix(1);
  size_t number = 0;
  const bool has_unit = unit > 1 || !has_i;
  if (has_unit && absl::SimpleAtoi(digits, &number) && number > 0 && number <= kMost / unit) {
    return number * unit;
  }
  throw BadValue("'" + text +
                 "' is not a whole number from 1 to 1024G, plain or with K, M or G (or k, Ki and"
                 " so on)");
}

std::vector<size_t> to_counts(const std::string& text) {
  std::vector<size_t> counts;
  for (const auto part : absl::StrSplit(text, ',')) counts.push_back(to_count(std::string(part)));
  return counts;
}

bool is_one_of(const std::string& text, const std::vector<std::string>& known) {
  return std::find(known.begin(), known.end(), text) != known.end();
}

std::string one_of(const std::string& text, const std::vector<std::string>& known) {
  if (is_one_of(text, known)) return text;
  throw BadValue("unknown" + suggestion(text, known, "'", "'") + " (there are " +
                 absl::StrJoin(known, ", ") + ")");
}

// The name of a type or an operation. Another library may lack what nezha has.
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
        "a barrier before each operation, which does not count in its time: else a root may be"
        " ahead of the others by many operations",
        [&o](const auto&) { o.barrier = true; }},
       {0, "threads", "N", "threads that use one context, each with its own tag (default: 1)",
        [&o](const auto& v) { o.threads = to_number<size_t>(v, 1, 1024); }},
       {0, "start-up", "",
        "each rank tells first, in JSON, what it took to connect and to run an operation of the "
        "first"
        " size",
        [&o](const auto&) { o.start_up = true; }},
       {0, "format", "NAME", "table, json (one object a line) or csv (default: table)",
        [&o](const auto& v) { o.format = to_format(v); }},
       {0, "trace", "FILE",
        "rank 0 writes a line for each operation (CSV): when it ended (CLOCK_MONOTONIC), its time,"
        " what is learned, what it has sent",
        [&o](const auto& v) { o.trace = v; }}});
}

void add_policy_options(OptionTable& table, Options& o, const Dialect& dialect) {
  const auto& policies = dialect.policies;
  if (policies.empty()) return;
  table.push_back({0, "policy", "NAME",
                   "what divides messages: " + absl::StrJoin(policies, ", ") +
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
                   "of a flare rail alone: first run small operations until the switch has carried"
                   " one",
                   [&o](const auto&) { o.await_switch = true; }});
  table.push_back({0, "rails-report", "",
                   "tell at the end what each rail of the ranks has carried, whether it is up, and"
                   " what the load balancer has decided, when and why (json: one object more)",
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

constexpr const char* kReplayExplanation =
    "\nreplay repeats the steps of a training. Each line of FILE is 'GAP_US BYTES', microseconds\n"
    "of computation and the length of the allreduce that begins then; or 'step', which ends a\n"
    "step, as the end of the file does. # begins a comment. An allreduce goes on during the\n"
    "computation behind it, and a step ends when all of its allreduces are over. The rank sleeps\n"
    "instead of computing, as a CPU waits for a GPU. --warmup-iters, --iteration-count and\n"
    "--iteration-time are of steps; the trace is timed as a whole, and as often without its\n"
    "computation.\n";

void print_explanations() {
  std::fputs(
      "\nOne process per rank, all with the same options; rank 0 prints. A rank's percentiles are\n"
      "of its own iterations; shown are the smallest minimum and, of the others, the value of the\n"
      "rank where it is largest. Times are in microseconds (_us in json and csv).\n"
      "\n"
      "Bandwidths are in Gbit/s (10^9 bits a second; _gbps). Gloo's GB/s are 2^30 bytes a second,\n"
      "which is 8.59 Gbit/s. As in nccl-tests:\n"
      "  algorithm bandwidth = threads x bytes / p50\n"
      "  bus bandwidth = algorithm bandwidth x 2 (n - 1) / n of an allreduce of n ranks, x 1 of a\n"
      "  reduce or a broadcast, and x (n - 1) / n of the others. This is the least rate at which\n"
      "  the busiest rank sends or receives, where ranks send to each other. It can be compared\n"
      "  with the line rate whatever the number of ranks. With a switch that adds up, a rank\n"
      "  sends half as much, and more than 100% is possible. A barrier has no data, and no\n"
      "  bandwidth.\n"
      "bytes is the size of the vector. Of an allgather, a reduce_scatter, an alltoall, a gather\n"
      "or a scatter it is n times a rank's block, whose elements --elements gives.\n"
      "line rate (line_rate_percent) is the bus bandwidth in percent of line_rate_gbps, which is\n"
      "the sum of --line-rate, or else of the speeds that the kernel knows of the rails'\n"
      "interfaces (NICs, bonds and VLANs; a veth or a bridge has none), at the rank where it is\n"
      "least. What is not known or not there is - in the table, null in json, and empty in csv.\n"
      "cpu_s is the CPU seconds of all ranks during the timed iterations; busy_cores is how many\n"
      "cores were at work meanwhile, for any process or the kernel, of those that rank 0 may use;\n"
      "learned is what the load balancer has learned of the size; a rail's bytes are what all\n"
      "ranks sent on it during the timed iterations, and its share is its part of all of them.\n"
      "\n"
      "Iterations are timed in batches, after each of which rank 0 tells whether there is time "
      "for\n"
      "more. Every element of each warm-up result is checked, and of the last result if it is not\n"
      "in place; of a warm-up of more than 10 iterations, which runs on without such pauses, "
      "those\n"
      "of the first and the last. Inputs are small whole numbers, of which results are exact. The\n"
      "root of a reduce or a broadcast is rank 0.\n"
      "Exit status: 0; 1 an error or a wrong result; 2 a bad command line.\n",
      stdout);
}

void print_help(const OptionTable& table, const Dialect& dialect) {
  std::printf("%s - %s\n\nusage: %s [options] %s\n", dialect.program.c_str(), dialect.about.c_str(),
              dialect.program.c_str(), absl::StrJoin(dialect.collectives, "|").c_str());
  if (dialect.replays) std::printf("       %s [options] replay FILE\n", dialect.program.c_str());
  print_options(table);
  print_explanations();
  if (dialect.replays) std::fputs(kReplayExplanation, stdout);
}

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

void take_defaults(const Dialect& dialect, Options& o) {
  if (o.timeout.count() == 0) o.timeout = std::chrono::seconds(30);
  if (o.rank != 0) return;  // the others take rank 0's
  if (o.plan.empty()) o.plan = o.shares.empty() ? dialect.plans.front() : "slice";
  if (o.policy.empty() && !dialect.policies.empty()) {
    o.policy = o.shares.empty() ? dialect.policies.front() : "none";
  }
  if (o.algorithm.empty()) o.algorithm = dialect.algorithms.front();
}

// The number of slices: a flare rail has none, and alone it has one rail of links beside it.
size_t slices_of(const std::vector<std::string>& rails) {
  const auto is_link = [](const auto& rail) { return !absl::StartsWith(rail, "flare:"); };
  return static_cast<size_t>(
      std::max<std::ptrdiff_t>(1, std::count_if(rails.begin(), rails.end(), is_link)));
}

void check_together(const Options& o, const Dialect& dialect) {
  check_rendezvous(o);
  if (o.rails.empty() && dialect.list_rails == nullptr) {
    throw UsageError("--" + dialect.rails_option + " is needed");
  }
  if (!o.shares.empty() && !o.plan.empty() && o.plan != "slice") {
    throw UsageError(shares_without_slices("--share", o.plan));
  }
  if (!o.shares.empty() && !fit(o.shares, o.rails)) {
    throw UsageError(shares_do_not_fit("--share", o.shares.size(), slices_of(o.rails)));
  }
  const size_t rates = o.line_rates.size();
  if (rates > 1 && rates != o.rails.size() && !has_auto(o.rails)) {
    throw UsageError(absl::StrCat("--line-rate: ", rates, " numbers for ", o.rails.size(),
                                  o.rails.size() == 1 ? " rail" : " rails",
                                  "; give one for all rails together, or one for each of them"));
  }
  const auto& reproducible = dialect.reproducible_algorithms;
  if (o.reproducible && !o.algorithm.empty() && !is_one_of(o.algorithm, reproducible)) {
    throw UsageError("--reproducible is not for --algorithm " + o.algorithm + ", but for " +
                     absl::StrJoin(reproducible, ", "));
  }
  if (o.rails_report && o.format == Format::kCsv) {
    throw UsageError("--rails-report is for --format table and json");
  }
}

std::string the_collective(const std::vector<std::string>& words, const Dialect& dialect) {
  const auto& known = dialect.collectives;
  const std::string there_are = " (there are " + absl::StrJoin(known, ", ") + ")";
  if (words.empty()) throw UsageError("which collective?" + there_are);
  if (words.size() > 1) throw UsageError("one collective at a time, not also '" + words[1] + "'");
  if (!is_one_of(words[0], known)) {
    throw UsageError("unknown collective '" + words[0] + "'" +
                     suggestion(words[0], known, "'", "'") + there_are);
  }
  return words[0];
}

// Takes the file of `replay FILE` from the words, and leaves the collective that it replays.
void take_replay(std::vector<std::string>& words, const Dialect& dialect, Options& o) {
  if (!dialect.replays || words.empty() || words[0] != "replay") return;
  if (words.size() < 2) throw UsageError("replay: which FILE?");
  if (words.size() > 2) throw UsageError("replay: one FILE at a time, not also '" + words[2] + "'");
  o.replay = words[1];
  words = {"allreduce"};
}

void check_replay(const Options& o) {
  const auto refuse = [](bool is_given, const std::string& option) {
    if (is_given) throw UsageError("--" + option + " is not for replay");
  };
  refuse(!o.elements.empty(), "elements");
  refuse(o.barrier, "barrier");
  refuse(o.start_up, "start-up");
  refuse(o.threads > 1, "threads");
  refuse(!o.trace.empty(), "trace");
  if (o.format == Format::kCsv) throw UsageError("replay is for --format table and json");
}

// Checks and completes the options that not all collectives have.
void complete_for_collective(Options& o, const Dialect& dialect) {
  const CollectiveKind& kind = kind_of(o.collective);
  const bool has_algorithms = o.collective == "allreduce" || kind.has_blocks();
  if (!has_algorithms && !o.algorithm.empty() && o.algorithm != dialect.algorithms.front()) {
    throw UsageError("--algorithm is not for " + o.collective);
  }
  if (o.reproducible && (!kind.reduces || kind.is_rooted)) {
    throw UsageError("--reproducible is not for " + o.collective);
  }
  if (!kind.reduces && !o.operation.empty()) {
    throw UsageError("--operation is not for " + o.collective + ", which combines nothing");
  }
  if (kind.reduces && o.operation.empty()) o.operation = "sum";
  if (kind.is_shift && o.in_place) {
    throw UsageError("--in-place is not for " + o.collective +
                     ", which sends what it has while it receives");
  }
  if (o.collective == "barrier") {
    if (!o.elements.empty()) throw UsageError("a barrier has no --elements");
    if (!o.type.empty()) throw UsageError("a barrier has no elements of any --type");
    o.elements = {0};
  } else if (o.type.empty()) {
    o.type = "float32";
  }
  if (o.collective != "allreduce" && o.start_up) {
    throw UsageError("--start-up is for allreduce only");
  }
  if (o.elements.empty()) {
    for (size_t n = 1; n <= 16 * 1024 * 1024; n *= 4) o.elements.push_back(n);
  }
}

}  // namespace

std::vector<double> to_shares(const std::string& text) {
  std::vector<double> shares = to_numbers(text, true);
  if (std::all_of(shares.begin(), shares.end(), [](double share) { return share == 0; })) {
    throw BadValue(absl::StrCat("'", text, "': no share is positive"));
  }
  return shares;
}

std::string to_text(const std::vector<double>& shares) {
  constexpr auto kLossless = [](std::string* out, double share) {
    absl::StrAppendFormat(out, "%.17g", share);
  };
  return absl::StrJoin(shares, ",", kLossless);
}

bool has_auto(const std::vector<std::string>& rails) {
  return rails.empty() || is_one_of("auto", rails);
}

bool fit(const std::vector<double>& shares, const std::vector<std::string>& rails) {
  return has_auto(rails) || shares.size() == slices_of(rails);
}

std::string shares_text(const Options& options) {
  if (!options.shares.empty()) return absl::StrJoin(options.shares, ",");
  if (options.plan != "slice") return "not given";
  const bool learns = !options.policy.empty() && options.policy != "none";
  return learns ? "learned" : absl::StrJoin(std::vector<int>(slices_of(options.rails), 1), ",");
}

std::optional<Options> parse_options(int argc, char** argv, const Dialect& dialect) {
  Options options;
  bool help = false;
  bool help_environment = false;
  bool version = false;
  bool list_rails = false;
  OptionTable table;
  add_rendezvous_options(table, options, "the deadline of each operation (default: 30s)");
  add_measurement_options(table, options, dialect);
  add_rail_options(table, options, dialect, list_rails);
  table.push_back({'h', "help", "", "this text", [&help](const auto&) { help = true; }});
  if (!dialect.environment_help.empty()) {
    table.push_back({0, "help-env", "", "the environment variables, which give defaults",
                     [&](const auto&) { help_environment = true; }});
  }
  table.push_back({0, "version", "", "the version", [&version](const auto&) { version = true; }});

  auto words = apply(table, argc, argv);
  if (help) {
    print_help(table, dialect);
    return std::nullopt;
  }
  if (help_environment) {
    std::fputs(dialect.environment_help.c_str(), stdout);
    return std::nullopt;
  }
  if (version) {
    std::printf("%s %s\n", dialect.program.c_str(), NEZHA_VERSION);
    return std::nullopt;
  }
  if (list_rails) {
    dialect.list_rails();
    return std::nullopt;
  }
  take_replay(words, dialect, options);
  options.collective = the_collective(words, dialect);
  if (!options.replay.empty()) check_replay(options);
  complete_for_collective(options, dialect);
  if (!dialect.environment_help.empty()) take_from_library_environment(table, dialect, options);
  take_from_environment(options);
  take_defaults(dialect, options);
  check_together(options, dialect);
  if (!options.replay.empty()) {
    options.steps = read_training_trace(options.replay, sizeOf(to_type(options.type)));
  }
  make_shared_path(options);
  return options;
}

}  // namespace nezha::bench
