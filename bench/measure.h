// The measurement of one collective, size by size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/options.h"
#include "bench/runner.h"

namespace nezha::bench {

// What one size gave. Times are in microseconds.
struct Measurement {
  size_t elements = 0;
  size_t iterations = 0;  // of each thread
  // The minimum is that of all ranks; the others are each the largest of the ranks' own.
  double min = 0;
  double p50 = 0;
  double p99 = 0;
  double max = 0;
  // CPU seconds of all ranks during the timed iterations, and what they sent.
  double cpu_seconds = 0;
  std::vector<RailBytes> sent;
  std::string learned;  // Runner::learned, at the end
};

class Benchmark {
 public:
  // `rails`: the names of those that any rank has, in the same order on every rank. Throws if the
  // trace cannot be written.
  Benchmark(Runner& runner, const Options& options, std::vector<std::string> rails);

  // Measures one size. Collective: every rank calls it, and every rank gets the same result.
  // Throws WrongResult and what the library throws.
  Measurement measure(size_t elements);

 private:
  struct Job;
  void prepare(Job& job, size_t elements, uint32_t tag);
  void fill(Job& job);
  void check(Job& job);
  void warm_up(Job& job);
  // Back to back, all threads at once; the jobs have the times then.
  void repeat(std::vector<Job>& jobs, size_t iterations);
  void trace(size_t bytes, double time);
  // What rank 0 wishes, on all ranks. Also a barrier.
  size_t agree(double wish);
  // As many as the options say, or fit into their time. Returns on all ranks at about once.
  size_t choose_iterations(std::vector<Job>& jobs);
  // What this rank has sent so far, on each of rails_.
  std::vector<RailBytes> bytes_sent() const;
  Measurement run_timed(std::vector<Job>& jobs, size_t iterations);
  Measurement combine(const Measurement& mine);

  Runner& runner_;
  const Options& options_;
  const std::vector<std::string> rails_;
  uint64_t next_number_ = 0;
  std::ofstream trace_;
};

}  // namespace nezha::bench
