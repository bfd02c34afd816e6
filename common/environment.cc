// SPDX-License-Identifier: Apache-2.0
#include "common/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/log_file.h"
#include "common/port_range.h"
#include "common/spelling.h"
#include "nezha/environment.h"

namespace nezha {
namespace {

using Kind = EnvironmentVariable::Kind;

constexpr absl::string_view kPrefix = "NEZHA_";
constexpr absl::Duration kShortest = absl::Milliseconds(1);
constexpr absl::Duration kLongest = absl::Hours(24 * 365);

const EnvironmentVariable* find(absl::string_view name) {
  for (const auto& variable : environment_table()) {
    if (variable.name == name) return &variable;
  }
  return nullptr;
}

std::optional<int64_t> parse_number(const EnvironmentVariable& variable, absl::string_view text) {
  int64_t number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= variable.least && number <= variable.most) {
    return number;
  }
  return std::nullopt;
}

bool is_list(absl::string_view text) {
  const std::vector<std::string> names = parse_list(text);
  return std::find(names.begin(), names.end(), "") == names.end();
}

// Describes the allowed values as a user would.
std::string may_be(const EnvironmentVariable& variable) {
  switch (variable.kind) {
    case Kind::kChoice:
      return absl::StrCat("one of ", absl::StrJoin(variable.choices, ", "));
    case Kind::kNumber:
      return absl::StrCat("a whole number from ", variable.least, " to ", variable.most);
    case Kind::kDuration:
      return "a time such as 500ms, 30s or 1.5h, from 1ms to 8760h";
    case Kind::kList:
      return "names separated by commas";
    case Kind::kPath:
      return "the path of a file";
    case Kind::kLogFile:
      return std::string(LogFileName::kMayBe);
    case Kind::kPorts:
      return PortRange::kMayBe;
    case Kind::kNumbers:
      return "numbers of 0 or more separated by commas, at least one of them positive, such as "
             "70,30";
  }
  return "";
}

bool is_valid(const EnvironmentVariable& variable, absl::string_view value) {
  const auto& choices = variable.choices;
  switch (variable.kind) {
    case Kind::kChoice:
      return std::find(choices.begin(), choices.end(), value) != choices.end();
    case Kind::kNumber:
      return parse_number(variable, value).has_value();
    case Kind::kDuration:
      return parse_duration(value).ok();
    case Kind::kList:
      return is_list(value);
    case Kind::kPath:
      return !value.empty();
    case Kind::kLogFile:
      return LogFileName::is_valid(value);
    case Kind::kPorts:
      return !value.empty() && PortRange::parse(value).has_value();
    case Kind::kNumbers:
      return parse_numbers(value).ok();
  }
  return false;
}

absl::Status check_name(absl::string_view name) {
  if (find(name) != nullptr) return absl::OkStatus();
  std::vector<absl::string_view> known;  // without the common prefix
  for (const auto& variable : environment_table()) {
    known.push_back(absl::StripPrefix(variable.name, kPrefix));
  }
  const auto meant = near_name(absl::StripPrefix(name, kPrefix), known);
  const std::string names = meant ? absl::StrCat("did you mean ", kPrefix, *meant, "?")
                                  : absl::StrCat("the known ones are ", kPrefix,
                                                 absl::StrJoin(known, absl::StrCat(", ", kPrefix)));
  return absl::InvalidArgumentError(
      absl::StrCat("unknown environment variable ", name, "; ", names));
}

// Breaks lines at spaces.
void append_wrapped(std::string& out, absl::string_view text, absl::string_view indent) {
  constexpr size_t kColumns = 80;
  size_t column = kColumns;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    const bool fits = column + 1 + word.size() <= kColumns;
    column = fits ? column + 1 + word.size() : indent.size() + word.size();
    absl::StrAppend(&out, fits ? " " : absl::StrCat(out.empty() ? "" : "\n", indent), word);
  }
}

}  // namespace

const std::vector<EnvironmentVariable>& environment_table() {
  static const auto& table = *new std::vector<EnvironmentVariable>{
      {.name = "NEZHA_LOG",
       .kind = Kind::kChoice,
       .default_value = "warning",
       .help =
           "The level of the log on standard error: messages of this level and of the more severe "
           "ones are written. warning reports rails that are lost, that never come up and that "
           "return. info also reports each context and each link that is made. debug also reports "
           "each failed attempt to make a link and each decision of the load balancer. A line "
           "begins with its time, its level, and the rank, host and process that wrote it. A line "
           "about something that several contexts of a process share names a rank only if all of "
           "them have the same rank. A message calls another process \"process\" and a number "
           "while its rank is not known, and \"rank 2 of 4 (host, pid)\" later.",
       .choices = {"trace", "debug", "info", "warning", "error", "critical", "off"}},
      {.name = "NEZHA_LOG_FILE",
       .kind = Kind::kLogFile,
       .help = "The file to which the log is appended, in place of standard error. nezha opens the "
               "file for the first line. %r is the rank of the first context that the process has "
               "made or, before there is one, the launcher's; in a process that has no rank, such "
               "as nezha-switch, it is \"none\". If the file cannot be written, a warning and the "
               "log go to standard error."},
      {.name = "NEZHA_RAILS",
       .kind = Kind::kList,
       .default_value = "auto",
       .help = "This rank's devices, such as tcp:eth0,tcp:eth1, or auto, which finds them. "
               "auto,!eth0,!ib* finds them too, and leaves out the interfaces whose names match "
               "these patterns (ContextOptions::rails)."},
      {.name = "NEZHA_PORTS",
       .kind = Kind::kPorts,
       .help = "The ports at which this process is reached, such as 20000-20100, for firewalls "
               "(ContextOptions::ports). tcp rails use TCP, flare rails use UDP. Each rail takes "
               "the first port that is free at its address. The kernel chooses the ports from "
               "which connections are made. Not set: any ports."},
      {.name = "NEZHA_TIMEOUT",
       .kind = Kind::kDuration,
       .default_value = "30s",
       .help = "The deadline of each operation that has no deadline of its own, and of joining a "
               "context (ContextOptions::timeout)."},
      {.name = "NEZHA_PLAN",
       .kind = Kind::kChoice,
       .default_value = "auto",
       .agreed = true,
       .help = "How one operation is spread over the rails (ContextOptions::plan). stripe: all "
               "rails share all segments of the message, by the rates that the rails show. slice: "
               "each rail carries one slice of the message, whose length NEZHA_SHARES gives or "
               "NEZHA_POLICY learns. auto: the load balancer chooses, for messages of each size, "
               "among stripes, slices and each rail alone. If NEZHA_SHARES are given and no plan "
               "is, the plan is slice.",
       .choices = {"stripe", "slice", "auto"}},
      {.name = "NEZHA_SHARES",
       .kind = Kind::kNumbers,
       .agreed = true,
       .help = "The part of each message that each rail carries with the plan slice, on any scale, "
               "in the order of the rails (ContextOptions::shares). A flare rail has no share. A "
               "rail with the share 0 is a spare for when the others fail. Not set: the parts are "
               "equal at first, and NEZHA_POLICY changes them."},
      {.name = "NEZHA_POLICY",
       .kind = Kind::kChoice,
       .default_value = "model",
       .agreed = true,
       .help =
           "How the load balancer finds the parts of messages of each size "
           "(ContextOptions::policy). model: it learns a model of the time that each rail takes. "
           "paper: it learns as the Nezha paper describes. none: it learns nothing; this is also "
           "the default where shares are given. shuffle: it divides at random, for tests.",
       .choices = {"model", "paper", "none", "shuffle"}},
      {.name = "NEZHA_TABLE",
       .kind = Kind::kPath,
       .help = "The file of rank 0's data length table (ContextOptions::table). nezha reads the "
               "file at the start, if it is there, and writes it at the end."},
      {.name = "NEZHA_FLARE_SECRET",
       .kind = Kind::kPath,
       .help = "The file with the secret that the rail flare:INTERFACE@MANAGER shares with its "
               "nezha-manager."},
      {.name = "NEZHA_ALGORITHM",
       .kind = Kind::kChoice,
       .default_value = "auto",
       .agreed = true,
       .help = "The algorithm of each allreduce that chooses none itself "
               "(AllreduceOptions::setAlgorithm), if that allreduce can use it. auto: nezha "
               "chooses by the size and the number of ranks.",
       .choices = {"auto", "ring", "recursive-doubling", "halving-doubling", "direct", "bcube"}},
      {.name = "NEZHA_POLL",
       .kind = Kind::kNumber,
       .default_value = "100",
       .help = "How many microseconds a caller that waits polls after each event before it sleeps. "
               "A larger number makes small messages faster where every process has a core to "
               "itself; 0 leaves the core to others at once. nezha reads the value when the "
               "process makes its first context.",
       .least = 0,
       .most = 1'000'000},
      {.name = "NEZHA_POLLING",
       .kind = Kind::kChoice,
       .default_value = "latency-first",
       .help = "How a caller waits for an operation (ContextOptions::polling). latency-first: the "
               "caller polls for NEZHA_POLL microseconds after each event before it sleeps, "
               "because waking it takes longer than a small message does. In a long ring it polls "
               "only toward the end. Polling costs CPU time, up to a core for each caller, though "
               "the caller yields to whoever wants that core. cpu-first: the caller polls only in "
               "operations of up to 16 KiB and in barriers. In larger operations it sleeps at "
               "once, and in a long ring it leaves what comes alone for twice as long. That leaves "
               "CPU time to other threads and processes, but larger operations may take longer.",
       .choices = {"latency-first", "cpu-first"}},
      {.name = "NEZHA_RAIL_THREADS",
       .kind = Kind::kChoice,
       .default_value = "auto",
       .help = "Whether rails have threads of their own, which move the data of messages of 256 "
               "KiB and more. auto: as many rails have one as there are cores for, where a process "
               "has two or more cores of its own; the cores are those of the thread that makes the "
               "context, divided by the ranks of its machine. 0: no rail has one, and the callers "
               "that wait move all data. 1: each rail has one, on the cores near to its NIC that "
               "are dealt out to it, as far as the kernel tells. A rail that names cores "
               "(tcp:eth0?cpus=0-3,8) always has a thread, on those cores.",
       .choices = {"auto", "0", "1"}},
      {.name = "NEZHA_RDMA_PINNED",
       .kind = Kind::kNumber,
       .help =
           "How many bytes of memory the process registers with RDMA devices at most, beside the "
           "memory of the connections. Data in memory beyond that is copied, which is slower. 0: "
           "the process registers nothing. Not set: the limit is three quarters of the process's "
           "limit of locked memory (ulimit -l), or there is none if that has none.",
       .least = 0,
       .most = int64_t{1} << 50},
      {.name = "NEZHA_GLOO_COLLECTIVES",
       .kind = Kind::kChoice,
       .default_value = "nezha",
       .agreed = true,
       .help = "What carries out the collectives of a program into which libnezha_gloo.so is "
               "preloaded. nezha: nezha does. gloo: Gloo's own algorithms do, and send through "
               "nezha's device.",
       .choices = {"nezha", "gloo"}},
      {.name = "NEZHA_CHECK_POINTERS",
       .kind = Kind::kChoice,
       .default_value = "0",
       .help = "1: nezha checks all memory of an operation before the operation starts. Memory "
               "that is not mapped, that may not be read or written, or that belongs to a GPU is "
               "an error, which says so. This is for debugging: it adds about half a millisecond "
               "to each operation.",
       .choices = {"0", "1"}},
  };
  return table;
}

// ---- Values ------------------------------------------------------------------------------------

std::string environment_value(absl::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? "" : value;
}

std::string environment(absl::string_view name) {
  std::string value = environment_value(name);
  return value.empty() ? std::string(find(name)->default_value) : value;
}

int64_t environment_number(absl::string_view name) {
  const EnvironmentVariable& variable = *find(name);
  const auto number = parse_number(variable, environment(name));
  return number.has_value() ? *number : *parse_number(variable, variable.default_value);
}

absl::Status check_environment() {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    absl::string_view name(*entry);
    name = name.substr(0, name.find('='));
    if (!absl::StartsWith(name, kPrefix)) continue;
    if (absl::Status status = check_name(name); !status.ok()) return status;
  }
  for (const EnvironmentVariable& variable : environment_table()) {
    const std::string value = environment_value(variable.name);
    if (value.empty()) continue;
    if (absl::Status status = check_value(variable.name, value); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the environment variable ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status check_value(absl::string_view name, absl::string_view value) {
  const EnvironmentVariable& variable = *find(name);
  if (is_valid(variable, value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is '", value.substr(0, 80), "'; it may be ", may_be(variable)));
}

absl::StatusOr<std::chrono::milliseconds> parse_duration(absl::string_view text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration >= kShortest && duration <= kLongest) {
    return absl::ToChronoMilliseconds(duration);
  }
  return absl::InvalidArgumentError("not a time");
}

absl::StatusOr<std::vector<double>> parse_numbers(absl::string_view text) {
  constexpr double kMost = 1e12;
  std::vector<double> numbers;
  bool is_any_positive = false;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    double number = 0;
    if (!absl::SimpleAtod(part, &number) || !(number >= 0 && number < kMost)) {
      return absl::InvalidArgumentError("not numbers of 0 or more");
    }
    is_any_positive |= number > 0;
    numbers.push_back(std::abs(number));  // makes -0 a 0: other ranks would read them as different
  }
  if (!is_any_positive) return absl::InvalidArgumentError("none is positive");
  return numbers;
}

std::vector<std::string> parse_list(absl::string_view text) {
  std::vector<std::string> names;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (!names.empty() && !part.empty() && absl::ascii_isdigit(part.front())) {
      absl::StrAppend(&names.back(), ",", part);
    } else {
      names.emplace_back(part);
    }
  }
  return names;
}

// ---- The help ----------------------------------------------------------------------------------

std::string environmentHelp() {
  std::string text;
  append_wrapped(text,
                 "The environment variables of nezha. Values that the program sets itself take "
                 "precedence over them. An empty variable counts as not set. An unknown name that "
                 "begins with NEZHA_, or a value that a variable may not have, is an error.",
                 "");
  for (const EnvironmentVariable& variable : environment_table()) {
    absl::StrAppend(&text, "\n\n", variable.name);
    append_wrapped(text, variable.help, "    ");
    append_wrapped(
        text,
        absl::StrCat("It may be ", may_be(variable), ". Default: ",
                     variable.default_value.empty() ? "none" : variable.default_value, "."),
        "    ");
    append_wrapped(text,
                   variable.agreed ? "All ranks have the same value: ranks that are given none "
                                     "take rank 0's, and a different value is an error."
                                   : "Each rank may have a value of its own.",
                   "    ");
  }
  return text + "\n";
}

}  // namespace nezha
