// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>

#include "absl/strings/str_format.h"
#include "bench/measurement/busy_cores.h"
#include "bench/measurement/element_type.h"
#include "bench/measurement/gather.h"
#include "bench/measurement/line_rate.h"
#include "bench/measurement/process_usage.h"
#include "bench/measurement/shape.h"
#include "bench/measurement/timing.h"

namespace nezha::bench {
namespace {

// Checking a result takes about as long as the operation, and the networks rest meanwhile: what the
// library learns from operations with such pauses is right for such operations only. So in a
// warm-up that is longer than this, which is there for learning, only the first and the last result
// are checked.
constexpr size_t kAllChecked = 10;      // iterations
constexpr size_t kLeastIterations = 3;  // fewer have no median
constexpr double kMostIterations = 1e6;
// A batch of iterations takes at most this part of the whole time, as far as that can be foreseen.
constexpr double kBatchPart = 0.1;

// Calls body(0) here and the others in threads of their own, at the same time. Throws the first
// one's error after all have ended.
void in_parallel(size_t threads, const std::function<void(size_t)>& body) {
  std::vector<std::exception_ptr> errors(threads);
  const auto guarded = [&](size_t i) {
    try {
      body(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(guarded, i);
  guarded(0);
  for (auto& thread : others) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// Returns the operation that inputs are made for. Where nothing is combined, the maximum's inputs
// are numbers of each rank's own.
ReduceOperation pattern_operation(const Options& options) {
  return kind_of(options.collective).reduces ? to_operation(options.operation)
                                             : ReduceOperation::kMax;
}

// The bytes of a separate output before an operation. No result has such an element, so one that is
// never written shows: it is no number, or -1, or the greatest number of its type.
constexpr std::byte kUnwritten{0xff};

}  // namespace

// One thread's share of the work.
struct Benchmark::Job {
  size_t elements = 0;
  Shape shape;
  std::vector<std::byte> memory;           // the input; in place, the longer of the two
  std::vector<std::byte> separate_output;  // the output if it is not in place
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::unique_ptr<Operation> barrier;  // null: operations follow each other at once
  std::unique_ptr<Operation> operation;
  uint64_t number = 0;  // the operation that the input was filled in for
  std::vector<double> times;

  // Returns the operation's time.
  double run() const {
    if (barrier) barrier->run();
    const auto start = Clock::now();
    operation->run();
    return microseconds_since(start);
  }
};

Benchmark::Benchmark(Runner& runner, const Options& options, std::vector<std::string> rails)
    : runner_(runner),
      options_(options),
      rails_(std::move(rails)),
      type_(to_type(options.type)),
      pattern_(type_, pattern_operation(options), options.size),
      line_rate_(line_rate(options)) {
  if (options.trace.empty() || options.rank != 0) return;
  trace_.open(options.trace);
  if (!trace_) throw std::runtime_error("--trace " + options.trace + ": cannot be written");
  trace_ << "seconds,bytes,us,learned";
  for (const auto& name : rails_) trace_ << ",sent_" << name;
  trace_ << std::endl;
}

Measurement Benchmark::measure(size_t elements) {
  std::vector<Job> jobs(options_.threads);
  for (size_t i = 0; i < jobs.size(); ++i) prepare(jobs[i], elements, static_cast<uint32_t>(i));
  in_parallel(jobs.size(), [&](size_t i) { warm_up(jobs[i]); });
  for (auto& job : jobs) {
    fill(job);
    job.times.clear();
  }
  const Measurement mine = run_timed(jobs);
  if (!options_.in_place) {  // in place, the result was the next input
    for (auto& job : jobs) check(job);
  }
  return combine(mine);
}

void Benchmark::prepare(Job& job, size_t elements, uint32_t tag) {
  job.number = next_number_++;
  job.elements = elements;
  job.shape = shape_of(options_.collective, options_.rank, options_.size, elements);
  const auto [vector, input, output, overlay, runs] = job.shape;
  const size_t size = sizeOf(type_);
  job.memory.resize(size * (options_.in_place ? std::max(input, output) : input));
  if (!options_.in_place) job.separate_output.assign(size * output, kUnwritten);
  job.input = job.memory.data();
  job.output = options_.in_place ? job.input : job.separate_output.data();
  if (options_.in_place) (input < output ? job.input : job.output) += size * overlay;
  Request request{options_.collective, type_, to_operation(options_.operation)};
  request.input = job.input;
  request.output = job.output;
  request.elements = elements;
  request.tag = tag;
  job.operation = runner_.prepare(request);
  if (!options_.barrier) return;
  Request barrier{.collective = "barrier"};
  barrier.tag = tag;
  job.barrier = runner_.prepare(barrier);
}

size_t Benchmark::bytes_of(const Job& job) const { return job.shape.vector * sizeOf(type_); }

void Benchmark::fill(Job& job) {
  job.number += options_.threads;  // inputs that are near in time differ
  pattern_.fill_input(job.input, job.shape.input, options_.rank, job.number);
}

void Benchmark::check(Job& job) {
  if (!options_.verify) return;
  const std::byte* result = job.output;
  for (const auto& [rank, from, count] : job.shape.runs) {
    if (rank < 0) {
      pattern_.check_reduction(result, count, job.number, from);
    } else {
      pattern_.check_copy(result, count, rank, job.number, from);
    }
    result += count * sizeOf(type_);
  }
}

void Benchmark::warm_up(Job& job) {
  const bool learns = options_.warmup_iterations > kAllChecked;
  for (size_t k = 0; k < options_.warmup_iterations; ++k) {
    const bool is_checked = !learns || k == 0 || k + 1 == options_.warmup_iterations;
    if (is_checked) fill(job);
    job.times.push_back(job.run());
    if (is_checked) check(job);
  }
}

void Benchmark::repeat(std::vector<Job>& jobs, size_t iterations) {
  const size_t done = jobs[0].times.size();
  for (auto& job : jobs) job.times.resize(done + iterations);  // pages are touched beforehand
  in_parallel(jobs.size(), [&](size_t i) {
    for (size_t k = done; k < jobs[i].times.size(); ++k) {
      jobs[i].times[k] = jobs[i].run();
      if (i == 0 && trace_.is_open()) trace(bytes_of(jobs[i]), jobs[i].times[k]);
    }
  });
}

// Writes when the operation ended, by the clock that other programs of the machine know as
// CLOCK_MONOTONIC; its size and time; how the next one will be divided; and what this rank has
// sent. Flushes the line at once, for somebody who watches.
void Benchmark::trace(size_t bytes, double time) {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  trace_ << absl::StreamFormat("%.6f,%d,%.1f,%s", now.count(), bytes, time, runner_.learned(bytes));
  for (const auto& rail : bytes_sent_by(runner_, rails_))
    trace_ << absl::StreamFormat(",%.0f", rail.bytes);
  trace_ << std::endl;
}

size_t Benchmark::agree(size_t wish) {
  return static_cast<size_t>(gather(runner_, options_, {static_cast<double>(wish)})[0][0]);
}

size_t Benchmark::next_batch(const std::vector<double>& times, size_t last,
                             Clock::time_point start) {
  const size_t done = times.size();
  if (options_.iteration_count > 0) return done > 0 ? 0 : agree(options_.iteration_count);
  if (done == 0) return agree(kLeastIterations);
  const auto newest = times.end() - static_cast<std::ptrdiff_t>(last);
  const double mean = std::accumulate(newest, times.end(), 0.0) / static_cast<double>(last);
  const double budget = Microseconds(options_.iteration_time).count();
  const double left = budget - microseconds_since(start);
  const double most = kMostIterations - static_cast<double>(done);
  const double wish = std::min({std::max(1.0, kBatchPart * budget / mean), most,
                                2 * static_cast<double>(done), std::round(left / mean)});
  return agree(static_cast<size_t>(std::max(0.0, wish)));
}

void Benchmark::run_batch(std::vector<Job>& jobs, size_t iterations, Measurement& mine) {
  const auto sent_before = bytes_sent_by(runner_, rails_);
  const double cpu_before = process_cpu_seconds();
  repeat(jobs, iterations);
  mine.cpu_seconds += process_cpu_seconds() - cpu_before;
  const auto sent = bytes_sent_by(runner_, rails_);
  for (size_t i = 0; i < sent.size(); ++i) {
    mine.sent[i].bytes += sent[i].bytes - sent_before[i].bytes;
  }
}

Measurement Benchmark::run_timed(std::vector<Job>& jobs) {
  Measurement mine;
  mine.elements = jobs[0].elements;
  mine.bytes = bytes_of(jobs[0]);
  mine.line_rate = line_rate_;
  for (const auto& name : rails_) mine.sent.push_back({name, 0});
  const BusyCores busy;
  const auto start = Clock::now();
  for (size_t batch = 0; (batch = next_batch(jobs[0].times, batch, start)) > 0;) {
    run_batch(jobs, batch, mine);
  }
  mine.busy_cores = busy.mean();

  std::vector<double> times;
  mine.iterations = jobs[0].times.size();
  mine.device = runner_.device();
  mine.learned = runner_.learned(mine.bytes);
  for (const auto& job : jobs) times.insert(times.end(), job.times.begin(), job.times.end());
  std::sort(times.begin(), times.end());
  mine.min = times.front();
  mine.p50 = percentile(times, 0.5);
  mine.p99 = percentile(times, 0.99);
  mine.max = times.back();
  return mine;
}

Measurement Benchmark::combine(const Measurement& mine) {
  std::vector<double> values = {mine.min, mine.p50,         mine.p99,
                                mine.max, mine.cpu_seconds, mine.line_rate};
  for (const auto& rail : mine.sent) values.push_back(rail.bytes);
  Measurement all = mine;
  all.cpu_seconds = 0;
  for (auto& rail : all.sent) rail.bytes = 0;
  for (const auto& rank : gather(runner_, options_, values)) {
    all.min = std::min(all.min, rank[0]);
    all.p50 = std::max(all.p50, rank[1]);
    all.p99 = std::max(all.p99, rank[2]);
    all.max = std::max(all.max, rank[3]);
    all.cpu_seconds += rank[4];
    all.line_rate = std::min(all.line_rate, rank[5]);
    for (size_t i = 0; i < all.sent.size(); ++i) all.sent[i].bytes += rank[6 + i];
  }
  return all;
}

}  // namespace nezha::bench
