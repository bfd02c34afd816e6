// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/start_up.h"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/measurement/element_type.h"
#include "bench/measurement/pattern.h"
#include "bench/measurement/process_usage.h"
#include "bench/measurement/report.h"
#include "bench/measurement/timing.h"

namespace nezha::bench {
namespace {

// The number is apart from those of the timed operations, which are small.
constexpr uint64_t kNumber = uint64_t{1} << 20;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void run_first(const Options& options, Runner& runner) {
  Request request{"allreduce", to_type(options.type), to_operation(options.operation)};
  const Pattern pattern(request.type, request.operation, options.size);
  request.elements = options.elements.front();
  request.tag = static_cast<uint32_t>(options.threads) + 1;  // gather() has the tag below
  std::vector<std::byte> input(request.elements * sizeOf(request.type));
  std::vector<std::byte> output(input.size());
  request.input = input.data();
  request.output = output.data();
  pattern.fill_input(request.input, request.elements, options.rank, kNumber);
  runner.prepare(request)->run();
  if (options.verify) pattern.check_reduction(request.output, request.elements, kNumber);
}

}  // namespace

std::unique_ptr<Runner> measured_start_up(const Dialect& dialect, const Options& options,
                                          Meeting& meeting, const Connect& connect) {
  const ProcessUsage before = process_usage();
  const double cpu_before = process_cpu_seconds();
  const auto begin = Clock::now();
  auto runner = connect(options, meeting);
  const double connect_ms = milliseconds_since(begin);
  run_first(options, *runner);
  const double first_ms = milliseconds_since(begin);
  const double cpu_seconds = process_cpu_seconds() - cpu_before;
  const uint64_t requests = meeting.requests();
  // The others may still be connecting to this rank.
  meeting.union_of("ready", {});
  const ProcessUsage after = process_usage();
  std::printf("%s\n",
              absl::StrFormat(
                  R"({"program":"%s","ranks":%d,"rank":%d,"algorithm":"%s","start_up_bytes":%d,)"
                  R"("connect_ms":%.3f,"first_ms":%.3f,"cpu_ms":%.3f,"store_requests":%d,)"
                  R"("memory_kib":%d,"resident_kib":%d,"peak_kib":%d,)"
                  R"("threads":%d,"descriptors":%d,"sockets":%d})",
                  dialect.program, options.size, options.rank, options.algorithm,
                  options.elements.front() * sizeOf(to_type(options.type)), connect_ms, first_ms,
                  1e3 * cpu_seconds, requests, after.anonymous_kib - before.anonymous_kib,
                  after.resident_kib, after.peak_kib, after.threads - before.threads,
                  after.descriptors - before.descriptors, after.sockets - before.sockets)
                  .c_str());
  flush_output();
  meeting.union_of("counted", {});
  return runner;
}

}  // namespace nezha::bench
