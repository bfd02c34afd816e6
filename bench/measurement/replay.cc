// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/replay.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "bench/measurement/element_type.h"
#include "bench/measurement/gather.h"
#include "bench/measurement/process_usage.h"
#include "bench/measurement/timing.h"

namespace nezha::bench {
namespace {

constexpr double kLeastPasses = 3;  // fewer have no median
constexpr double kMostSteps = 1e5;
constexpr std::byte kNoResult{0xff};  // no result has such an element

Spread spread_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {times.front(), percentile(times, 0.25), percentile(times, 0.5), percentile(times, 0.75),
          times.back()};
}

// Returns the mean of the spreads of several kinds of steps.
Spread mean_spread(const std::vector<std::vector<double>>& times) {
  Spread mean;
  for (const auto& each : times) {
    const Spread spread = spread_of(each);
    const auto parts = static_cast<double>(times.size());
    mean.min += spread.min / parts;
    mean.p25 += spread.p25 / parts;
    mean.p50 += spread.p50 / parts;
    mean.p75 += spread.p75 / parts;
    mean.max += spread.max / parts;
  }
  return mean;
}

void combine_spread(Spread& all, const double* rank) {
  all.min = std::min(all.min, rank[0]);
  all.p25 = std::max(all.p25, rank[1]);
  all.p50 = std::max(all.p50, rank[2]);
  all.p75 = std::max(all.p75, rank[3]);
  all.max = std::max(all.max, rank[4]);
}

size_t longest_step(const std::vector<TracedStep>& steps) {
  size_t most = 0;
  for (const auto& step : steps) most = std::max(most, bytes_of(step));
  return most;
}

}  // namespace

double ReplayResult::exposed() const { return std::max(0.0, step.p50 - computation); }

double ReplayResult::hidden() const { return std::max(0.0, communication.p50 - exposed()); }

Replay::Replay(Runner& runner, const Options& options, std::vector<std::string> rails)
    : runner_(runner),
      options_(options),
      steps_(options.steps),
      rails_(std::move(rails)),
      type_(to_type(options.type)),
      pattern_(type_, to_operation(options.operation), options.size),
      input_(longest_step(options.steps)),
      output_(options.in_place ? 0 : input_.size()) {
  for (const auto& step : steps_) {
    size_t place = 0;
    for (const auto& operation : step) {
      if (place == 0) pieces_.emplace_back();
      prepare(place, operation.bytes, pieces_.back());
      place += operation.bytes;
    }
  }
}

void Replay::prepare(size_t place, size_t bytes, std::vector<Piece>& pieces) {
  Piece piece;
  piece.elements = bytes / sizeOf(type_);
  piece.input = input_.data() + place;
  piece.output = options_.in_place ? piece.input : output_.data() + place;
  Request request{"allreduce", type_, nezha::bench::to_operation(options_.operation)};
  request.input = piece.input;
  request.output = piece.output;
  request.elements = piece.elements;
  // The tag of the number of threads is gather()'s.
  request.tag = static_cast<uint32_t>(options_.threads + 1 + pieces.size());
  piece.operation = runner_.prepare_async(request);
  if (!piece.operation) throw std::runtime_error("the library has no asynchronous operations");
  pieces.push_back(std::move(piece));
}

void Replay::fill(std::vector<Piece>& pieces) {
  std::fill(output_.begin(), output_.end(), kNoResult);
  for (auto& piece : pieces) {
    piece.number = next_number_++;
    pattern_.fill_input(piece.input, piece.elements, options_.rank, piece.number);
  }
}

void Replay::check(const std::vector<Piece>& pieces) const {
  if (!options_.verify) return;
  for (const auto& piece : pieces) {
    pattern_.check_reduction(piece.output, piece.elements, piece.number);
  }
}

double Replay::run_step(size_t number, bool computes, double* computed) {
  const TracedStep& step = steps_[number];
  auto& pieces = pieces_[number];
  const auto start = Clock::now();
  for (size_t i = 0; i < step.size(); ++i) {
    if (computes && step[i].gap.count() > 0) {
      const auto pause = Clock::now();
      std::this_thread::sleep_for(step[i].gap);
      *computed += microseconds_since(pause);
    }
    pieces[i].operation->start();
  }
  for (auto& piece : pieces) piece.operation->wait();
  return microseconds_since(start);
}

double Replay::run_checked_step(size_t number) {
  auto& pieces = pieces_[number];
  fill(pieces);
  double computed = 0;
  const double time = run_step(number, true, &computed);
  check(pieces);
  return time;
}

// All ranks make as many passes as rank 0 has time for. Half of that time is for steps without
// computation.
size_t Replay::passes_to_time(double step_time) {
  const auto steps = static_cast<double>(steps_.size());
  auto wanted = static_cast<double>(options_.iteration_count);
  if (options_.iteration_count == 0) {
    const double budget = Microseconds(options_.iteration_time).count() / 2;
    const double fitting = step_time > 0 ? budget / step_time : 0;
    wanted = std::clamp(fitting, steps * kLeastPasses, kMostSteps);
  }
  return static_cast<size_t>(gather(runner_, options_, {std::ceil(wanted / steps)})[0][0]);
}

// Steps with and without computation take turns, so that noise hits both alike.
Replay::Times Replay::run_timed(size_t passes) {
  Times times(steps_.size());
  for (size_t pass = 0; pass < passes; ++pass) {
    for (size_t step = 0; step < steps_.size(); ++step) {
      double computed = 0;
      times.step[step].push_back(run_step(step, true, &computed));
      times.computation[step].push_back(computed);
      times.communication[step].push_back(run_step(step, false, &computed));
    }
  }
  return times;
}

ReplayResult Replay::measure() {
  double step_time = 0;
  for (size_t k = 0; k < options_.warmup_iterations; ++k) {
    step_time = run_checked_step(k % steps_.size());
  }
  ReplayResult mine;
  const size_t passes = passes_to_time(step_time);
  const auto sent_before = bytes_sent_by(runner_, rails_);
  const double cpu_before = process_cpu_seconds();
  const Times times = run_timed(passes);
  mine.cpu_seconds = process_cpu_seconds() - cpu_before;
  mine.sent = bytes_sent_by(runner_, rails_);
  for (size_t i = 0; i < sent_before.size(); ++i) mine.sent[i].bytes -= sent_before[i].bytes;
  mine.steps = passes * steps_.size();
  for (const auto& step : steps_) {
    mine.bytes += static_cast<double>(bytes_of(step)) / static_cast<double>(steps_.size());
    mine.operations += static_cast<double>(step.size()) / static_cast<double>(steps_.size());
  }
  mine.step = mean_spread(times.step);
  mine.communication = mean_spread(times.communication);
  mine.computation = mean_spread(times.computation).p50;
  for (size_t step = 0; step < steps_.size(); ++step) run_checked_step(step);
  return combine(mine);
}

ReplayResult Replay::combine(const ReplayResult& mine) {
  std::vector<double> values;
  for (const Spread& each : {mine.step, mine.communication}) {
    values.insert(values.end(), {each.min, each.p25, each.p50, each.p75, each.max});
  }
  values.insert(values.end(), {mine.computation, mine.cpu_seconds});
  for (const auto& rail : mine.sent) values.push_back(rail.bytes);
  ReplayResult all = mine;
  all.cpu_seconds = 0;
  for (auto& rail : all.sent) rail.bytes = 0;
  for (const auto& rank : gather(runner_, options_, values)) {
    combine_spread(all.step, rank.data());
    combine_spread(all.communication, rank.data() + 5);
    all.computation = std::max(all.computation, rank[10]);
    all.cpu_seconds += rank[11];
    for (size_t i = 0; i < all.sent.size(); ++i) all.sent[i].bytes += rank[12 + i];
  }
  return all;
}

}  // namespace nezha::bench
