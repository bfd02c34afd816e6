// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/report.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/measurement/shape.h"
#include "bench/measurement/shares.h"
#include "bench/meeting/json.h"

namespace nezha::bench {
namespace {

// Returns the bandwidth in Gbit/s, 10^9 bits a second.
double algorithm_bandwidth(const Options& options, const Measurement& result) {
  const auto bytes = static_cast<double>(options.threads * result.bytes);
  return result.p50 > 0 ? 8 * bytes / result.p50 / 1e3 : 0;
}

// Returns how much the busiest rank must at least send or receive, as a multiple of the message, if
// ranks send to each other. This factor times the algorithm bandwidth can be compared with the line
// rate for any number of ranks. nccl-tests has the same factors.
double bus_factor(const Options& options) {
  const double others = static_cast<double>(options.size - 1) / options.size;
  if (kind_of(options.collective).has_blocks()) return others;
  return options.collective == "allreduce" ? 2 * others : 1;
}

double bus_bandwidth(const Options& options, const Measurement& result) {
  return bus_factor(options) * algorithm_bandwidth(options, result);
}

double line_rate_percent(const Options& options, const Measurement& result) {
  return 100 * bus_bandwidth(options, result) / result.line_rate;
}

double share(const Measurement& result, const RailBytes& rail) {
  double total = 0;
  for (const auto& each : result.sent) total += each.bytes;
  return total > 0 ? rail.bytes / total : 0;
}

std::string fixed(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

constexpr const char* kUnknown = "null";

// A barrier has no data, and so no bandwidth.
bool has_data(const Measurement& result) { return result.bytes > 0; }

bool has_line_rate_percent(const Measurement& result) {
  return has_data(result) && result.line_rate > 0;
}

// Names and values, the values as JSON has them.
using Fields = std::vector<std::pair<std::string, std::string>>;

Fields common_fields(const Dialect& dialect, const Options& o, const Measurement& result) {
  const auto if_known = [](bool is_known, double number, int digits) {
    return is_known ? fixed(number, digits) : kUnknown;
  };
  const bool moves = has_data(result);
  return {{"program", quoted(dialect.program)},
          {"collective", quoted(o.collective)},
          {"type", quoted(o.type)},
          {"operation", quoted(o.operation)},
          {"ranks", std::to_string(o.size)},
          {"plan", quoted(o.plan)},
          {"algorithm", quoted(o.algorithm)},
          {"threads", std::to_string(o.threads)},
          {"bytes", std::to_string(result.bytes)},
          {"elements", std::to_string(result.elements)},
          {"iterations", std::to_string(result.iterations)},
          {"min_us", fixed(result.min, 1)},
          {"p50_us", fixed(result.p50, 1)},
          {"p99_us", fixed(result.p99, 1)},
          {"max_us", fixed(result.max, 1)},
          {"algorithm_bandwidth_gbps", if_known(moves, algorithm_bandwidth(o, result), 6)},
          {"bus_bandwidth_gbps", if_known(moves, bus_bandwidth(o, result), 6)},
          {"line_rate_gbps", if_known(result.line_rate > 0, result.line_rate, 3)},
          {"line_rate_percent",
           if_known(has_line_rate_percent(result), line_rate_percent(o, result), 3)},
          {"cpu_s", fixed(result.cpu_seconds, 6)},
          {"busy_cores", if_known(result.busy_cores >= 0, result.busy_cores, 2)},
          {"device", quoted(result.device)},
          {"learned", quoted(result.learned)}};
}

Fields rail_fields(const Measurement& result, const RailBytes& rail) {
  return {{"name", quoted(rail.name)},
          {"bytes", fixed(rail.bytes, 0)},
          {"share", fixed(share(result, rail), 4)}};
}

std::string json_members(const Fields& fields) {
  std::string text;
  for (const auto& [name, value] : fields) {
    text += (text.empty() ? "" : ",") + quoted(name) + ":" + value;
  }
  return text;
}

void print_json(const Dialect& dialect, const Options& options, const Measurement& result) {
  std::string rails;
  for (const auto& rail : result.sent) {
    rails += (rails.empty() ? "{" : ",{") + json_members(rail_fields(result, rail)) + "}";
  }
  std::printf("{%s,\"rails\":[%s]}\n",
              json_members(common_fields(dialect, options, result)).c_str(), rails.c_str());
}

void print_csv(const Dialect& dialect, const Options& options, const Measurement& result) {
  std::string line;
  for (const auto& [name, value] : common_fields(dialect, options, result)) {
    line += (value == kUnknown ? "" : value) + ",";
  }
  for (const auto& rail : result.sent) {
    for (const auto& [name, value] : rail_fields(result, rail)) line += value + ",";
  }
  line.pop_back();
  std::puts(line.c_str());
}

void print_csv_header(const Dialect& dialect, const Options& options, size_t rails) {
  std::string line;
  for (const auto& [name, value] : common_fields(dialect, options, {})) line += name + ",";
  for (size_t i = 0; i < rails; ++i) {
    for (const auto& [name, value] : rail_fields({}, {})) {
      line += "rail" + std::to_string(i) + "_" + name + ",";
    }
  }
  line.pop_back();
  std::puts(line.c_str());
}

constexpr int kLongestShare = 7;  // " 100.0%"

void print_table_row(const Options& options, const Measurement& result) {
  const auto bandwidth = [&](double number) { return has_data(result) ? fixed(number, 3) : "-"; };
  const std::string used = has_line_rate_percent(result)
                               ? absl::StrCat(fixed(line_rate_percent(options, result), 1), "%")
                               : "-";
  std::printf("%12zu %12zu %11.1f %11.1f %11.1f %11.1f %10s %10s %9s %11zu  ", result.bytes,
              result.elements, result.min, result.p50, result.p99, result.max,
              bandwidth(algorithm_bandwidth(options, result)).c_str(),
              bandwidth(bus_bandwidth(options, result)).c_str(), used.c_str(), result.iterations);
  std::string rest;
  for (const auto& rail : result.sent) {
    const std::string percent = absl::StrCat(" ", fixed(100 * share(result, rail), 1), "%");
    absl::StrAppendFormat(&rest, " %s%-*s", rail.name, kLongestShare, percent);
  }
  absl::StrAppend(&rest, "  ", result.learned);
  absl::StripTrailingAsciiWhitespace(&rest);
  std::puts(rest.c_str());
}

void print_table_head(const Dialect& dialect, const std::vector<std::string>& rails) {
  int width = -1;
  for (const auto& name : rails) width += 1 + static_cast<int>(name.size()) + kLongestShare;
  const std::string line(12 + 1 + 12, ' ');
  std::printf("%s %11s %11s %11s %11s %10s %10s\n", line.c_str(), "", "", "", "", "algorithm",
              "bus");
  std::printf("%s %11s %11s %11s %11s %10s %10s\n", line.c_str(), "", "", "", "", "bandwidth",
              "bandwidth");
  std::printf("%12s %12s %11s %11s %11s %11s %10s %10s %9s %11s   %-*s%s\n", "size (B)", "elements",
              "min (us)", "p50 (us)", "p99 (us)", "max (us)", "(Gbit/s)", "(Gbit/s)", "line rate",
              "iterations", width, "sent on each rail",
              dialect.policies.empty() ? "" : "  load balancer");
}

void print_table_header(const Dialect& dialect, const Options& o,
                        const std::vector<std::string>& rails) {
  const std::string shares =  // which belong to the rails in the order of the command line
      o.plan == "slice" ? absl::StrCat(absl::StrJoin(o.rails, ","), " in parts ", shares_text(o))
                        : absl::StrJoin(rails, ",");
  const std::string what = o.type.empty()
                               ? "no data"
                               : absl::StrCat(o.type, o.operation.empty() ? "" : " ", o.operation);
  std::printf("%s %s: %s, ranks %d, threads %zu, plan %s, algorithm %s, %s, rails %s\n\n",
              dialect.program.c_str(), o.collective.c_str(), what.c_str(), o.size, o.threads,
              o.plan.c_str(), o.algorithm.c_str(), o.verify ? "verified" : "not verified",
              shares.c_str());
  print_table_head(dialect, rails);
}

constexpr const char* kBalancerLegend =
    "load balancer: what rank 0 had learned about such messages at the end of the row.\n"
    "  searching: the balancer looks for the rails that are to carry them; cold: one rail\n"
    "  carries them, or they go as stripes; hot: several rails carry them, and the balancer\n"
    "  looks for the part of each; converged: several rails carry them and finish together;\n"
    "  (trying): an experiment uses other rails, parts or another algorithm for up to some\n"
    "  hundred operations. Then comes the part that each rail is to carry (stripes: the whole\n"
    "  message over all rails), and the algorithm if it is not the usual one.\n"
    "  Blank: the balancer has decided nothing about such messages. It decides about\n"
    "  allreduces of 4 KiB and more (from 8 MiB on only between stripes and one rail, except\n"
    "  with plan slice or a switch), and about none with plan stripe or policy none. Other\n"
    "  messages go as stripes, by the rails' rates, or by the fastest rail if they are short.\n";

}  // namespace

void flush_output() {
  const bool is_written = std::fflush(stdout) == 0;
  const std::string why = is_written ? "" : absl::StrCat(": ", std::strerror(errno));
  if (!is_written || std::ferror(stdout) != 0) {
    throw std::runtime_error(absl::StrCat("writing to standard output failed", why));
  }
}

void print_header(const Dialect& dialect, const Options& options,
                  const std::vector<std::string>& rails) {
  if (options.format == Format::kTable) print_table_header(dialect, options, rails);
  if (options.format == Format::kCsv) print_csv_header(dialect, options, rails.size());
  flush_output();
}

void print_row(const Dialect& dialect, const Options& options, const Measurement& result) {
  switch (options.format) {
    case Format::kTable:
      print_table_row(options, result);
      break;
    case Format::kJson:
      print_json(dialect, options, result);
      break;
    case Format::kCsv:
      print_csv(dialect, options, result);
      break;
  }
  flush_output();
}

void print_legend(const Dialect& dialect, const Options& options, const Measurement& last) {
  if (options.format != Format::kTable) return;
  if (has_data(last)) {
    std::printf("\nalgorithm bandwidth: threads x size / p50; bus bandwidth: %g times that\n",
                bus_factor(options));
    const std::string rate = last.line_rate > 0 ? absl::StrCat(last.line_rate, " Gbit/s")
                                                : "which is not known; --line-rate gives it";
    std::printf("line rate: the bus bandwidth in percent of a rank's line rate, %s\n",
                rate.c_str());
  }
  if (!last.device.empty()) std::printf("device: %s\n", last.device.c_str());
  if (!dialect.policies.empty()) std::fputs(kBalancerLegend, stdout);
  flush_output();
}

}  // namespace nezha::bench
