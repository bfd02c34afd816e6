#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>

#include "absl/strings/str_format.h"
#include "bench/gather.h"
#include "bench/pattern.h"
#include "bench/process_usage.h"

namespace nezha::bench {
namespace {

// To look at a result takes about as long as the operation, and networks rest meanwhile: what is
// learned by operations with such pauses is right for such operations. Of a warm-up that is longer
// than this, and so there to learn, the first and the last result alone are looked at.
constexpr size_t kAllChecked = 10;      // iterations
constexpr double kLeastIterations = 3;  // of fewer there is no median
constexpr double kMostIterations = 1e6;
constexpr double kTrialPart = 0.1;  // of the time for the timed iterations

double timed_run(Operation& operation) {
  const auto start = std::chrono::steady_clock::now();
  operation.run();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

// As in Gloo's benchmark program.
double percentile(const std::vector<double>& sorted, double part) {
  const auto index = static_cast<size_t>(part * static_cast<double>(sorted.size()));
  return sorted[std::min(index, sorted.size() - 1)];
}

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

}  // namespace

// One thread's share of the work.
struct Benchmark::Job {
  std::vector<float> input;
  std::vector<float> separate_output;  // empty: in place
  std::unique_ptr<Operation> operation;
  uint64_t number = 0;  // the operation that the input was filled in for
  std::vector<double> times;

  std::vector<float>& output() { return separate_output.empty() ? input : separate_output; }
};

Benchmark::Benchmark(Runner& runner, const Options& options, std::vector<std::string> rails)
    : runner_(runner), options_(options), rails_(std::move(rails)) {
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
  for (auto& job : jobs) fill(job);
  const Measurement mine = run_timed(jobs, choose_iterations(jobs));
  if (!options_.in_place) {  // in place, the sum was the next input
    for (auto& job : jobs) check(job);
  }
  return combine(mine);
}

void Benchmark::prepare(Job& job, size_t elements, uint32_t tag) {
  job.number = next_number_++;
  job.input.resize(elements);
  // not a number, so that an element that is never written shows
  if (!options_.in_place) job.separate_output.assign(elements, std::nanf(""));
  job.operation =
      runner_.prepare(options_.collective, job.input.data(), job.output().data(), elements, tag);
}

void Benchmark::fill(Job& job) {
  job.number += options_.threads;  // no two inputs that are near in time are alike
  fill_input(job.input, options_.rank, job.number);
}

void Benchmark::check(Job& job) {
  if (!options_.verify) return;
  const std::string& collective = options_.collective;
  const bool has_sum = collective == "allreduce" || (collective == "reduce" && options_.rank == 0);
  if (has_sum) check_sum(job.output(), options_.size, job.number);
  if (collective == "broadcast") check_copy(job.output(), /*rank=*/0, job.number);
}

void Benchmark::warm_up(Job& job) {
  const bool learns = options_.warmup_iterations > kAllChecked;
  for (size_t k = 0; k < options_.warmup_iterations; ++k) {
    const bool is_checked = !learns || k == 0 || k + 1 == options_.warmup_iterations;
    if (is_checked) fill(job);
    job.times.push_back(timed_run(*job.operation));
    if (is_checked) check(job);
  }
}

void Benchmark::repeat(std::vector<Job>& jobs, size_t iterations) {
  for (auto& job : jobs) job.times.assign(iterations, 0);  // the pages are touched beforehand
  in_parallel(jobs.size(), [&](size_t i) {
    for (double& time : jobs[i].times) {
      time = timed_run(*jobs[i].operation);
      if (i == 0 && trace_.is_open()) trace(jobs[i].input.size() * sizeof(float), time);
    }
  });
}

// When the operation ended, by the clock that other programs of the machine know as
// CLOCK_MONOTONIC; how the next one will be divided; and what this rank has sent. At once, for who
// looks on.
void Benchmark::trace(size_t bytes, double time) {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  trace_ << absl::StreamFormat("%.6f,%d,%.1f,%s", now.count(), bytes, time, runner_.learned(bytes));
  for (const auto& rail : bytes_sent()) trace_ << absl::StreamFormat(",%.0f", rail.bytes);
  trace_ << std::endl;
}

size_t Benchmark::agree(double wish) {
  return static_cast<size_t>(gather(runner_, options_, {wish})[0][0]);
}

size_t Benchmark::choose_iterations(std::vector<Job>& jobs) {
  if (options_.iteration_count > 0) return agree(static_cast<double>(options_.iteration_count));
  const double budget = std::chrono::duration<double, std::micro>(options_.iteration_time).count();
  std::vector<double>& times = jobs[0].times;
  std::sort(times.begin(), times.end());
  double operation_time = percentile(times, 0.5);
  // In a short warm-up the ranks waited for each other's checks. Where there is time for it, a few
  // iterations at the timed ones' pace tell better how long one takes.
  const double trial = std::min(kTrialPart * budget / operation_time, kMostIterations);
  if (const size_t agreed = agree(trial); agreed > 0) {
    repeat(jobs, agreed);
    operation_time = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(agreed);
  }
  return agree(std::clamp(budget / operation_time, kLeastIterations, kMostIterations));
}

std::vector<RailBytes> Benchmark::bytes_sent() const {
  std::vector<RailBytes> all;
  for (const auto& name : rails_) all.push_back({name, 0});
  for (const auto& mine : runner_.bytes_sent()) {
    for (auto& rail : all) {
      if (rail.name == mine.name) rail.bytes += mine.bytes;
    }
  }
  return all;
}

Measurement Benchmark::run_timed(std::vector<Job>& jobs, size_t iterations) {
  Measurement mine;
  mine.elements = jobs[0].input.size();
  mine.iterations = iterations;
  const auto sent_before = bytes_sent();
  const double cpu_before = process_cpu_seconds();
  repeat(jobs, iterations);
  mine.cpu_seconds = process_cpu_seconds() - cpu_before;
  mine.sent = bytes_sent();
  for (size_t i = 0; i < mine.sent.size(); ++i) mine.sent[i].bytes -= sent_before[i].bytes;

  std::vector<double> times;
  mine.learned = runner_.learned(mine.elements * sizeof(float));
  for (const auto& job : jobs) times.insert(times.end(), job.times.begin(), job.times.end());
  std::sort(times.begin(), times.end());
  mine.min = times.front();
  mine.p50 = percentile(times, 0.5);
  mine.p99 = percentile(times, 0.99);
  mine.max = times.back();
  return mine;
}

Measurement Benchmark::combine(const Measurement& mine) {
  std::vector<double> values = {mine.min, mine.p50, mine.p99, mine.max, mine.cpu_seconds};
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
    for (size_t i = 0; i < all.sent.size(); ++i) all.sent[i].bytes += rank[5 + i];
  }
  return all;
}

}  // namespace nezha::bench
