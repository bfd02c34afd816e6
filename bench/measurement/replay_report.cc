// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/measurement/replay.h"
#include "bench/measurement/report.h"
#include "bench/meeting/json.h"

namespace nezha::bench {
namespace {

// Returns the Gbit/s while a step's operations run without pauses between them.
double algorithm_bandwidth(const ReplayResult& result) {
  return 8 * result.bytes / result.communication.p50 / 1e3;
}

double bus_bandwidth(const Options& options, const ReplayResult& result) {
  return algorithm_bandwidth(result) * 2 * (options.size - 1) / options.size;
}

double share(const ReplayResult& result, const RailBytes& rail) {
  double total = 0;
  for (const auto& each : result.sent) total += each.bytes;
  return total > 0 ? rail.bytes / total : 0;
}

std::string spread_members(const std::string& name, const Spread& spread) {
  return absl::StrFormat(
      R"("%1$s_min_us":%2$.1f,"%1$s_p25_us":%3$.1f,"%1$s_p50_us":%4$.1f,"%1$s_p75_us":%5$.1f,)"
      R"("%1$s_max_us":%6$.1f)",
      name, spread.min, spread.p25, spread.p50, spread.p75, spread.max);
}

void print_json(const Dialect& dialect, const Options& options, const ReplayResult& result) {
  std::vector<std::string> rails;
  for (const auto& rail : result.sent) {
    rails.push_back(absl::StrFormat(R"({"name":%s,"bytes":%.0f,"share":%.4f})", quoted(rail.name),
                                    rail.bytes, share(result, rail)));
  }
  std::puts(
      absl::StrCat(
          "{\"program\":", quoted(dialect.program), ",\"replay\":", quoted(options.replay),
          ",\"type\":", quoted(options.type), ",\"operation\":", quoted(options.operation),
          ",\"ranks\":", options.size, ",\"plan\":", quoted(options.plan),
          ",\"algorithm\":", quoted(options.algorithm), ",\"steps\":", result.steps,
          absl::StrFormat(R"(,"operations_per_step":%g,"bytes_per_step":%.0f,)", result.operations,
                          result.bytes),
          spread_members("step", result.step), ",",
          spread_members("communication", result.communication),
          absl::StrFormat(
              R"(,"computation_us":%.1f,"exposed_us":%.1f,"hidden_us":%.1f,)"
              R"("algorithm_bandwidth_gbps":%.6f,"bus_bandwidth_gbps":%.6f,"cpu_s":%.6f)",
              result.computation, result.exposed(), result.hidden(), algorithm_bandwidth(result),
              bus_bandwidth(options, result), result.cpu_seconds),
          ",\"rails\":[", absl::StrJoin(rails, ","), "]}")
          .c_str());
}

void print_spread(const char* name, const Spread& spread) {
  std::printf("%-28s %11.1f %11.1f %11.1f %11.1f %11.1f\n", name, spread.min, spread.p25,
              spread.p50, spread.p75, spread.max);
}

void print_table(const Dialect& dialect, const Options& o, const ReplayResult& result) {
  const size_t steps = o.steps.size();
  std::printf("%s replay: %s, %zu %s; %s %s, ranks %d, plan %s, algorithm %s, %s\n\n",
              dialect.program.c_str(), o.replay.c_str(), steps,
              steps == 1 ? "step" : "different steps", o.type.c_str(), o.operation.c_str(), o.size,
              o.plan.c_str(), o.algorithm.c_str(), o.verify ? "verified" : "not verified");
  std::printf("%-28s %11s %11s %11s %11s %11s\n", "", "min (us)", "p25 (us)", "p50 (us)",
              "p75 (us)", "max (us)");
  print_spread("step", result.step);
  print_spread("communication alone", result.communication);
  std::printf("\na step: %g allreduces of %.0f bytes in all, and %.1f us of computation\n",
              result.operations, result.bytes, result.computation);
  std::printf("communication: %.1f us hidden by computation, %.1f us exposed\n", result.hidden(),
              result.exposed());
  std::printf("bandwidth: algorithm %.3f Gbit/s, bus %.3f Gbit/s\n", algorithm_bandwidth(result),
              bus_bandwidth(o, result));
  std::printf("sent on each rail:");
  for (const auto& rail : result.sent) {
    std::printf(" %s %.1f%%", rail.name.c_str(), 100 * share(result, rail));
  }
  std::printf("; CPU time of all ranks %.3f s\n", result.cpu_seconds);
  std::printf(
      "\nThe values are medians of %zu steps, and of as many steps without computation\n"
      "(communication alone), which took turns. Instead of computing the rank sleeps, as a CPU\n"
      "does while a GPU computes. Exposed communication is the step without its computation.\n"
      "Bandwidths are those of communication alone.\n",
      result.steps);
}

}  // namespace

void print_replay(const Dialect& dialect, const Options& options, const ReplayResult& result) {
  if (options.format == Format::kJson) {
    print_json(dialect, options, result);
  } else {
    print_table(dialect, options, result);
  }
  flush_output();
}

}  // namespace nezha::bench
