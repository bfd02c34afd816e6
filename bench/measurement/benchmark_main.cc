// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/benchmark_main.h"

#include <cstdio>
#include <exception>
#include <functional>
#include <new>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "bench/measurement/measure.h"
#include "bench/measurement/rails_report.h"
#include "bench/measurement/replay.h"
#include "bench/measurement/report.h"
#include "bench/measurement/shares.h"
#include "bench/measurement/start_up.h"
#include "bench/measurement/training_trace.h"
#include "common/command_line/command_line.h"
#include "common/standard_descriptors.h"

namespace nezha::bench {
namespace {

// Returns a short text for the trace; different traces have different texts.
std::string fingerprint(const std::vector<TracedStep>& steps) {
  size_t operations = 0;
  size_t bytes = 0;
  std::string all;
  for (const auto& step : steps) {
    operations += step.size();
    bytes += bytes_of(step);
    for (const auto& each : step) absl::StrAppend(&all, each.gap.count(), " ", each.bytes, "\n");
    absl::StrAppend(&all, "step\n");
  }
  return absl::StrCat(steps.size(), " steps of ", operations, " operations and ", bytes,
                      " bytes in all, hash ", absl::Hex(std::hash<std::string>()(all)));
}

// Returns all settings that must be the same on all ranks. Each rank may have its own rank, way to
// the store, rails, line rate, timeout, format and checks.
Settings settings_of(const Options& o) {
  const auto count = [](size_t number) { return std::to_string(number); };
  return {{"the collective", o.collective},
          {"--type", o.type},
          {"--operation", o.operation},
          {"--rails-report", o.rails_report ? "given" : "not given"},
          {"--size", std::to_string(o.size)},
          {"the trace of replay", o.replay.empty() ? "not given" : fingerprint(o.steps)},
          {"--elements", absl::StrJoin(o.elements, ",")},
          {"--warmup-iters", count(o.warmup_iterations)},
          {"--iteration-count", o.iteration_count > 0 ? count(o.iteration_count) : "not given"},
          {"--iteration-time", absl::FormatDuration(absl::FromChrono(o.iteration_time))},
          {"--start-up", o.start_up ? "given" : "not given"},
          {"--in-place", o.in_place ? "given" : "not given"},
          {"--barrier", o.barrier ? "given" : "not given"},
          {"--threads", count(o.threads)},
          {"--plan", o.plan},
          {"--share (if not given, learned or 1 for each rail)", shares_text(o)},
          {"--policy", o.policy},
          {"--algorithm", o.algorithm},
          {"--reproducible", o.reproducible ? "given" : "not given"},
          {"--await-switch", o.await_switch ? "given" : "not given"}};
}

std::vector<std::string> rail_names(const Runner& runner) {
  std::vector<std::string> names;
  for (const auto& rail : runner.bytes_sent()) names.push_back(rail.name);
  return names;
}

// Completes settings that rank 0 alone may be given, perhaps by its environment: as in the library,
// a rank that is given none takes rank 0's.
void take_from_rank_0(Meeting& meeting, Options& o) {
  const auto theirs =
      meeting.of_rank_0("given", {o.plan, o.algorithm, o.policy, to_text(o.shares)});
  if (o.plan.empty()) o.plan = theirs[0];
  if (o.algorithm.empty()) o.algorithm = theirs[1];
  if (o.policy.empty()) o.policy = theirs[2];
  if (!o.shares.empty() || theirs[3].empty()) return;
  const std::vector<double> shares = to_shares(theirs[3]);
  if (fit(shares, o.rails)) o.shares = shares;  // else the ranks are about to disagree
}

void measure_replay(const Dialect& dialect, const Options& options, Runner& runner,
                    const std::vector<std::string>& rails) {
  const ReplayResult result = Replay(runner, options, rails).measure();
  if (options.rank == 0) print_replay(dialect, options, result);
}

void measure_sizes(const Dialect& dialect, const Options& options, Runner& runner,
                   const std::vector<std::string>& rails) {
  Benchmark benchmark(runner, options, rails);
  const bool prints = options.rank == 0;
  if (prints) print_header(dialect, options, rails);
  Measurement last;
  for (const size_t elements : options.elements) {
    last = benchmark.measure(elements);
    if (prints) print_row(dialect, options, last);
  }
  if (prints) print_legend(dialect, options, last);
}

void run(const Dialect& dialect, Options& options, const Connect& connect, Meeting& meeting) {
  take_from_rank_0(meeting, options);
  meeting.agree("options", settings_of(options));
  const auto runner = options.start_up ? measured_start_up(dialect, options, meeting, connect)
                                       : connect(options, meeting);
  const auto rails = meeting.union_of("rails", rail_names(*runner));
  const auto measure = options.replay.empty() ? measure_sizes : measure_replay;
  measure(dialect, options, *runner, rails);
  if (options.rails_report) report_rails(*runner, options, meeting);
}

// Puts the rank before the text, which may name it already if it is the library's.
std::string with_rank(const Options& options, absl::string_view text) {
  absl::ConsumePrefix(&text, "nezha: ");
  const std::string rank = absl::StrCat("rank ", options.rank);
  absl::ConsumePrefix(&text, absl::StrCat(rank, " of ", options.size, ": "));
  return absl::StrCat(rank, " of ", options.size, ": ", text);
}

// The other ranks may wait for this one at the meeting, and have no connection to it.
void meet_and_run(const Dialect& dialect, Options options, const Connect& connect) {
  Meeting meeting(options, dialect.program);
  try {
    run(dialect, options, connect, meeting);
  } catch (const std::exception& error) {
    meeting.tell_failure(with_rank(options, error.what()));
    throw;
  }
}

}  // namespace

int benchmark_main(int argc, char** argv, const Dialect& dialect, const Connect& connect) {
  occupy_standard_descriptors();
  // If output cannot be written, flush_output() then fails, which knows the reason.
  static char output[size_t{64} << 10];
  std::setvbuf(stdout, output, _IOFBF, sizeof output);
  const char* program = dialect.program.c_str();
  std::optional<Options> options;
  try {
    options = parse_options(argc, argv, dialect);
    flush_output();
  } catch (const UsageError& error) {
    return refuse_usage(program, error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
  if (!options) return 0;
  try {
    meet_and_run(dialect, *options, connect);
    return 0;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: %s\n", program,
                 with_rank(*options, "not enough memory for so many --elements").c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, with_rank(*options, error.what()).c_str());
  }
  return 1;
}

}  // namespace nezha::bench
