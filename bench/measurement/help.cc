// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/help.h"

#include <cstdio>

#include "absl/strings/str_join.h"

namespace nezha::bench {
namespace {

constexpr const char* kExplanation = R"(
Start one process per rank, all with the same options; rank 0 prints. Each rank takes
the percentiles of its own iterations. The table shows the smallest minimum of all
ranks, and the largest value of each other column. Times are in microseconds (_us in
json and csv).

Bandwidths are in Gbit/s (10^9 bits a second; _gbps). Gloo's GB/s are 2^30 bytes a
second, which is 8.59 Gbit/s. As in nccl-tests:
  algorithm bandwidth = threads x bytes / p50
  bus bandwidth = algorithm bandwidth x 2 (n - 1) / n for an allreduce of n ranks, x 1
  for a reduce, a broadcast, send_recv or ping_pong, and x (n - 1) / n for the others.
  Where ranks send to each other, this is the least rate at which the busiest rank sends
  or receives. It can be compared with the line rate whatever the number of ranks. With a switch that adds
  up, a rank sends half as much, so more than 100% is possible. A barrier has no
  bandwidth.
bytes is the size of the vector. For an allgather, a reduce_scatter, an alltoall, a
gather or a scatter it is n times a rank's block, whose elements --elements gives.
line rate (line_rate_percent) is the bus bandwidth in percent of line_rate_gbps. This is
the sum of --line-rate, or else of the speeds that the kernel knows of the rails'
interfaces (NICs, bonds and VLANs; a veth or a bridge has none), at the rank where the
sum is least. A value that is not known is - in the table, null in json, and empty in
csv.
cpu_s is the CPU seconds of all ranks during the timed iterations. busy_cores is how
many of the cores that rank 0 may use were at work in that time, for any process or the
kernel. learned is what the load balancer has learned about the size. A rail's bytes are
what all ranks sent on it during the timed iterations, and its share is its part of all
bytes.

Iterations are timed in batches. After each batch rank 0 decides whether there is time
for more. Every element of each warm-up result is checked, and every element of the last
result unless it is in place. A warm-up of more than 10 iterations runs without these
pauses, and only its first and its last result are checked. Inputs are small whole
numbers, so results are exact. The root of a reduce or a broadcast is rank 0.
Exit status: 0 success; 1 an error or a wrong result; 2 a bad command line.
)";

constexpr const char* kReplayExplanation = R"(
replay repeats the steps of a training. A line of FILE is 'GAP_US BYTES': the
microseconds of computation before an allreduce, and the allreduce's length. The line
'step' ends a step, as does the end of the file. # begins a comment. An allreduce goes
on during the computation that follows it, and a step ends when all of its allreduces
are over. The rank sleeps instead of computing, as a CPU waits for a GPU.
--warmup-iters, --iteration-count and --iteration-time apply to steps. The trace is
timed as a whole, and as often without its computation.
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
