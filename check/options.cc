// SPDX-License-Identifier: Apache-2.0
#include "check/options.h"

#include <cstdio>

#include "bench/meeting/option_values.h"
#include "common/environment.h"
#include "nezha/version.h"

namespace nezha::check {
namespace {

constexpr const char* kIntroduction = R"(nezha-check - tests the networks of a job before it is run

usage: nezha-check [options]

Run it on all hosts of the job, one process per rank, as the job itself is started. Each
pair of ranks tests each rail that both have: whether a connection can be made in each
direction and arrives at the right interface, how large the packets are that get
through, the round trip, and the rate in each direction. Rank 0 prints a table, then
what is wrong, between which ranks, and what to do about it. nezha-check needs a few
seconds, and more with many hosts: each host is in one pair at a time, and a pair takes
about half a second for each rail. If a host has several ranks, one of them measures.
)";

constexpr const char* kTable = R"(
A line of the table is a rail that is well between the pairs named there, with the
largest round trip and the lowest rates of them, or one pair of ranks where something is
wrong. If a line has two values, the first is for the way from the lower rank to the
higher one. Times are in microseconds, rates in Gbit/s (10^9 bits a second) of one
connection's payload, and packets in bytes with the headers of IP.

The exit status is the same on all ranks: 0 all is well; 1 something is wrong, or a rank has
not come. It is 2 on a rank whose command line is bad.
)";

OptionTable make_table(Options& o, bool& help, bool& version) {
  OptionTable table;
  bench::add_rendezvous_options(
      table, o,
      "how long a rank waits for another one that does not come, or does not go on after the time"
      " that its measurement takes at most (default: $NEZHA_TIMEOUT, or 30s)");
  table.push_back({0, "", "", "What is tested", {}});
  table.push_back({0, "rails", "LIST",
                   "this rank's rails, such as tcp:eth0,tcp:eth1, or auto, which finds them"
                   " (auto,!eth0,!ib* leaves some out) (default: $NEZHA_RAILS, or auto)",
                   [&o](const auto& v) { o.rails = bench::to_names(v); }});
  table.push_back({0, "ports", "FIRST-LAST",
                   "the ports at which this rank is reached, such as 20000-20100 (default:"
                   " $NEZHA_PORTS, or any)",
                   [&o](const auto& v) { o.ports = bench::to_ports(v); }});
  table.push_back({0, "", "", "Output", {}});
  table.push_back({0, "json", "", "one JSON object in place of the table and the sentences",
                   [&o](const auto&) { o.json = true; }});
  table.push_back({'h', "help", "", "this text", [&help](const auto&) { help = true; }});
  table.push_back({0, "version", "", "the version", [&version](const auto&) { version = true; }});
  return table;
}

// Takes from the environment what the library would take.
void take_from_library_environment(Options& o) {
  if (const absl::Status status = check_environment(); !status.ok()) {
    throw UsageError(std::string(status.message()));
  }
  if (o.rails.empty()) o.rails = parse_list(environment("NEZHA_RAILS"));
  if (o.rails.empty()) o.rails = {"auto"};
  if (o.ports.empty()) o.ports = environment("NEZHA_PORTS");
  if (o.timeout.count() == 0) {
    const auto timeout = parse_duration(environment("NEZHA_TIMEOUT"));
    o.timeout = timeout.value_or(std::chrono::seconds(30));
  }
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  bool help = false;
  bool version = false;
  const OptionTable table = make_table(options, help, version);
  const auto words = bench::apply(table, argc, argv);
  if (help) {
    std::fputs(kIntroduction, stdout);
    bench::print_options(table);
    std::fputs(kTable, stdout);
    return std::nullopt;
  }
  if (version) {
    std::printf("nezha-check %s\n", NEZHA_VERSION);
    return std::nullopt;
  }
  if (!words.empty()) throw UsageError("'" + words.front() + "' is no option");
  take_from_library_environment(options);
  bench::take_from_environment(options);
  bench::check_rendezvous(options);
  bench::make_shared_path(options);
  return options;
}

}  // namespace nezha::check
