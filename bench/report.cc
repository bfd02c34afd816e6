#include "bench/report.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nezha::bench {
namespace {

size_t bytes_of(const Measurement& result) { return result.elements * sizeof(float); }

// In GiB/s, as Gloo counts, which says GB/s.
double gibibytes_per_second(const Options& options, const Measurement& result) {
  const auto bytes = static_cast<double>(options.threads * bytes_of(result));
  return bytes / (result.p50 * 1e-6) / (1 << 30);
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

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

// Name and value, the value as JSON has it.
using Fields = std::vector<std::pair<std::string, std::string>>;

Fields common_fields(const Dialect& dialect, const Options& o, const Measurement& result) {
  return {{"program", quoted(dialect.program)},
          {"collective", quoted(o.collective)},
          {"size", std::to_string(o.size)},
          {"plan", quoted(o.plan)},
          {"algorithm", quoted(o.algorithm)},
          {"threads", std::to_string(o.threads)},
          {"bytes", std::to_string(bytes_of(result))},
          {"elements", std::to_string(result.elements)},
          {"iterations", std::to_string(result.iterations)},
          {"min_us", fixed(result.min, 1)},
          {"p50_us", fixed(result.p50, 1)},
          {"p99_us", fixed(result.p99, 1)},
          {"max_us", fixed(result.max, 1)},
          {"bandwidth_gbps", fixed(gibibytes_per_second(o, result), 6)},
          {"cpu_s", fixed(result.cpu_seconds, 6)},
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
  for (const auto& [name, value] : common_fields(dialect, options, result)) line += value + ",";
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

void print_table_row(const Measurement& result, double bandwidth) {
  std::printf("%12zu %12zu %11.1f %11.1f %11.1f %11.1f %17.3f %11zu  ", bytes_of(result),
              result.elements, result.min, result.p50, result.p99, result.max, bandwidth,
              result.iterations);
  for (const auto& rail : result.sent) {
    std::printf(" %s %.1f%%", rail.name.c_str(), 100 * share(result, rail));
  }
  std::printf("%s%s\n", result.learned.empty() ? "" : "  ", result.learned.c_str());
}

void print_table_header(const Dialect& dialect, const Options& o,
                        const std::vector<std::string>& rails) {
  const std::string shares =  // which belong to the rails in the order of the command line
      o.plan == "slice" ? absl::StrCat(absl::StrJoin(o.rails, ","), " in parts ", shares_text(o))
                        : absl::StrJoin(rails, ",");
  const char* what = o.collective == "barrier"     ? "no data"
                     : o.collective == "broadcast" ? "float32"
                                                   : "float32 sum";
  std::printf("%s %s: %s, ranks %d, threads %zu, plan %s, algorithm %s, %s, rails %s\n\n",
              dialect.program.c_str(), o.collective.c_str(), what, o.size, o.threads,
              o.plan.c_str(), o.algorithm.c_str(), o.verify ? "verified" : "not verified",
              shares.c_str());
  std::printf("%12s %12s %11s %11s %11s %11s %17s %11s   %s\n", "size (B)", "elements", "min (us)",
              "p50 (us)", "p99 (us)", "max (us)", "bandwidth (GiB/s)", "iterations",
              "sent on each rail");
}

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
      print_table_row(result, gibibytes_per_second(options, result));
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

}  // namespace nezha::bench
