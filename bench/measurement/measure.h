// SPDX-License-Identifier: Apache-2.0
// The measurement of one collective, size by size.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/measurement/options.h"
#include "bench/measurement/pattern.h"
#include "bench/measurement/runner.h"

namespace nezha::bench {

// The result of one size. Times are in microseconds.
struct Measurement {
  size_t elements = 0;
  size_t bytes = 0;
  size_t iterations = 0;  // the iterations of each thread
  // The minimum is that of all ranks. Each of the others is the largest of the ranks' own values.
  double min = 0;
  double p50 = 0;
  double p99 = 0;
  double max = 0;
  // CPU seconds of all ranks during the timed iterations, and what they sent.
  double cpu_seconds = 0;
  std::vector<RailBytes> sent;
  // BusyCores::mean during these iterations, where this rank runs.
  double busy_cores = -1;
  // The least line rate of any rank, in Gbit/s; 0 if a rank does not know its own.
  double line_rate = 0;
  std::string device;   // Runner::device at this rank
  std::string learned;  // Runner::learned at this rank, at the end
};

class Benchmark {
 public:
  // `rails` are the names of the rails of all ranks, in the same order on every rank. Throws if the
  // trace cannot be written.
  Benchmark(Runner& runner, const Options& options, std::vector<std::string> rails);

  // Measures one size. The call is collective: every rank calls it. Values that combine all ranks
  // are the same on every rank; the others are this rank's own. Throws WrongResult and what the
  // library throws.
  Measurement measure(size_t elements);

 private:
  struct Job;
  void prepare(Job& job, size_t elements, uint32_t tag);
  size_t bytes_of(const Job& job) const;  // the vector's bytes
  void fill(Job& job);
  void check(Job& job);
  void warm_up(Job& job);
  // Runs the operations back to back, in all threads at once. Adds the times to the jobs' own.
  void repeat(std::vector<Job>& jobs, size_t iterations);
  void trace(size_t bytes, double time);
  // Returns rank 0's wish on all ranks. This is also a barrier.
  size_t agree(size_t wish);
  // Returns how many iterations all ranks run next, or 0 when all are done. `times` are those of
  // the iterations since `start`, the last batch of which had `last`. Returns on all ranks at about
  // the same time. The time of an iteration may change at any moment, and the first ones tell
  // little of it, so the batches grow from the least number on, and each is sized by the one before
  // it.
  size_t next_batch(const std::vector<double>& times, size_t last,
                    std::chrono::steady_clock::time_point start);
  // Runs `iterations` iterations, and adds their CPU time and bytes to `mine`.
  void run_batch(std::vector<Job>& jobs, size_t iterations, Measurement& mine);
  Measurement run_timed(std::vector<Job>& jobs);
  Measurement combine(const Measurement& mine);

  Runner& runner_;
  const Options& options_;
  const std::vector<std::string> rails_;
  const DataType type_;
  const Pattern pattern_;
  const double line_rate_;
  uint64_t next_number_ = 0;
  std::ofstream trace_;
};

}  // namespace nezha::bench
