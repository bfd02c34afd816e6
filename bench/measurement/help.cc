// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/help.h"

#include <cstdio>

#include "absl/strings/str_join.h"

namespace nezha::bench {
namespace {

constexpr const char* kExplanation = R"(
One process per rank, all with the same options; rank 0 prints. A rank's percentiles are
of its own iterations; shown are the smallest minimum and, of the others, the value of the
rank where it is largest. Times are in microseconds (_us in json and csv).

Bandwidths are in Gbit/s (10^9 bits a second; _gbps). Gloo's GB/s are 2^30 bytes a second,
which is 8.59 Gbit/s. As in nccl-tests:
  algorithm bandwidth = threads x bytes / p50
  bus bandwidth = algorithm bandwidth x 2 (n - 1) / n of an allreduce of n ranks, x 1 of a
  reduce or a broadcast, and x (n - 1) / n of the others. This is the least rate at which
  the busiest rank sends or receives, where ranks send to each other. It can be compared
  with the line rate whatever the number of ranks. With a switch that adds up, a rank
  sends half as much, and more than 100% is possible. A barrier has no data, and no
  bandwidth.
bytes is the size of the vector. Of an allgather, a reduce_scatter, an alltoall, a gather
or a scatter it is n times a rank's block, whose elements --elements gives.
line rate (line_rate_percent) is the bus bandwidth in percent of line_rate_gbps, which is
the sum of --line-rate, or else of the speeds that the kernel knows of the rails'
interfaces (NICs, bonds and VLANs; a veth or a bridge has none), at the rank where it is
least. What is not known or not there is - in the table, null in json, and empty in csv.
cpu_s is the CPU seconds of all ranks during the timed iterations; busy_cores is how many
cores were at work meanwhile, for any process or the kernel, of those that rank 0 may use;
learned is what the load balancer has learned of the size; a rail's bytes are what all
ranks sent on it during the timed iterations, and its share is its part of all of them.

Iterations are timed in batches, after each of which rank 0 tells whether there is time for
more. Every element of each warm-up result is checked, and of the last result if it is not
in place; of a warm-up of more than 10 iterations, which runs on without such pauses, those
of the first and the last. Inputs are small whole numbers, of which results are exact. The
root of a reduce or a broadcast is rank 0.
Exit status: 0; 1 an error or a wrong result; 2 a bad command line.
)";

constexpr const char* kReplayExplanation = R"(
replay repeats the steps of a training. Each line of FILE is 'GAP_US BYTES', microseconds
of computation and the length of the allreduce that begins then; or 'step', which ends a
step, as the end of the file does. # begins a comment. An allreduce goes on during the
computation behind it, and a step ends when all of its allreduces are over. The rank sleeps
instead of computing, as a CPU waits for a GPU. --warmup-iters, --iteration-count and
--iteration-time are of steps; the trace is timed as a whole, and as often without its
computation.
)";

}  // namespace

void print_help(const OptionTable& table, const Dialect& dialect) {
  std::printf("%s - %s\n\nusage: %s [options] %s\n", dialect.program.c_str(), dialect.about.c_str(),
              dialect.program.c_str(), absl::StrJoin(dialect.collectives, "|").c_str());
  if (dialect.replays) std::printf("       %s [options] replay FILE\n", dialect.program.c_str());
  print_options(table);
  std::fputs(kExplanation, stdout);
  if (dialect.replays) std::fputs(kReplayExplanation, stdout);
}

}  // namespace nezha::bench
