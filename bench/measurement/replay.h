// SPDX-License-Identifier: Apache-2.0
// Replays a training's communication: allreduces that begin between pieces of computation and go on
// meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/measurement/options.h"
#include "bench/measurement/pattern.h"
#include "bench/measurement/runner.h"
#include "bench/measurement/training_trace.h"

namespace nezha::bench {

// Times in microseconds. If a trace has different steps, each value is the mean of the steps' own
// values. `min` is the smallest of all ranks, and each of the others is the largest.
struct Spread {
  double min = 0;
  double p25 = 0;
  double p50 = 0;
  double p75 = 0;
  double max = 0;
};

struct ReplayResult {
  size_t steps = 0;       // timed ones with computation, and as many without
  double bytes = 0;       // the mean of a step
  double operations = 0;  // the mean of a step
  Spread step;
  Spread communication;    // steps without their computation
  double computation = 0;  // microseconds of pauses in a step, measured, the median
  double cpu_seconds = 0;  // CPU seconds of all ranks, in both kinds of steps
  std::vector<RailBytes> sent;

  // Returns the microseconds of the median step's communication during which nothing was computed.
  double exposed() const;
  // Returns the microseconds of the rest, which took place during computation.
  double hidden() const;
};

class Replay {
 public:
  // `rails` are the names of the rails of all ranks, in the same order on every rank. The options'
  // trace is the same on every rank. Throws if the library has no operations in the background.
  Replay(Runner& runner, const Options& options, std::vector<std::string> rails);

  // The call is collective: every rank calls it, and every rank gets the same result. Throws
  // WrongResult and what the library throws.
  ReplayResult measure();

 private:
  // An operation of a step, and its part of the memory.
  struct Piece {
    size_t elements = 0;
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    uint64_t number = 0;  // the operation that the input was filled in for
    std::unique_ptr<AsyncOperation> operation;
  };

  // Times in microseconds, indexed by step of the trace and then by repetition.
  struct Times {
    explicit Times(size_t steps) : step(steps), communication(steps), computation(steps) {}
    std::vector<std::vector<double>> step;
    std::vector<std::vector<double>> communication;
    std::vector<std::vector<double>> computation;
  };

  void prepare(size_t place, size_t bytes, std::vector<Piece>& pieces);
  void fill(std::vector<Piece>& pieces);
  void check(const std::vector<Piece>& pieces) const;
  // `number` is the step's place in the trace. Returns the time of the step, and adds the length of
  // its pauses to `*computed`.
  double run_step(size_t number, bool computes, double* computed);
  // Runs that step once with its computation, and checks the results. Returns the time of the step.
  double run_checked_step(size_t number);
  size_t passes_to_time(double step_time);
  Times run_timed(size_t passes);
  ReplayResult combine(const ReplayResult& mine);

  Runner& runner_;
  const Options& options_;
  const std::vector<TracedStep>& steps_;
  const std::vector<std::string> rails_;
  const DataType type_;
  const Pattern pattern_;
  std::vector<std::byte> input_;   // the input of the step that runs; in place, its output, too
  std::vector<std::byte> output_;  // empty in place
  uint64_t next_number_ = 0;
  std::vector<std::vector<Piece>> pieces_;  // each step's; they use the memory, and so go first
};

// Prints rank 0's report.
void print_replay(const Dialect& dialect, const Options& options, const ReplayResult& result);

}  // namespace nezha::bench
