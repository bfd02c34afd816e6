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
       .help = "What is logged, on standard error: messages of this level and of those after it. "
               "warning tells of rails that are lost, that never come up and that return, info of "
               "each context and of each link that is made, debug of each attempt to make a link "
               "that fails and of each decision of the load balancer. A line begins with its time, "
               "its level, and the rank, host and process that wrote it. What several contexts of "
               "one process share is told without a rank if they are not one and the same rank. "
               "Another process whose rank is not known yet is \"process\" and a number in a "
               "message, and \"rank 2 of 4 (host, pid)\" later.",
       .choices = {"trace", "debug", "info", "warning", "error", "critical", "off"}},
      {.name = "NEZHA_LOG_FILE",
       .kind = Kind::kLogFile,
       .help = "The file that the log is appended to, in place of standard error. It is opened for "
               "the first line. %r is the rank of the first context that the process has made or, "
               "before there is one, the launcher's; a process that has no rank, such as "
               "nezha-switch, is \"none\". A file that cannot be written is a warning on standard "
               "error, where the log then goes."},
      {.name = "NEZHA_RAILS",
       .kind = Kind::kList,
       .default_value = "auto",
       .help = "This rank's devices, such as tcp:eth0,tcp:eth1, or auto, which finds them. "
               "auto,!eth0,!ib* finds them too, and leaves out the interfaces whose names match "
               "these patterns (ContextOptions::rails)."},
      {.name = "NEZHA_PORTS",
       .kind = Kind::kPorts,
       .help = "The ports at which this process is reached, such as 20000-20100, for firewalls "
               "(ContextOptions::ports): by TCP for tcp rails, by UDP for flare rails. Each rail "
               "takes the first one that is free at its address. Connections are made from other "
               "ports, which the kernel chooses. Not set: any ports."},
      {.name = "NEZHA_TIMEOUT",
       .kind = Kind::kDuration,
       .default_value = "30s",
       .help = "The deadline of each operation that has none of its own, and of joining a context "
               "(ContextOptions::timeout)."},
      {.name = "NEZHA_PLAN",
       .kind = Kind::kChoice,
       .default_value = "auto",
       .agreed = true,
       .help =
           "How one operation is spread over the rails (ContextOptions::plan): all its segments "
           "over all rails, by the rates that they show; or a slice of the message for each "
           "rail, cut by NEZHA_SHARES or as NEZHA_POLICY learns to; or whichever of these, and "
           "of each rail alone, is best for messages of its size. Where NEZHA_SHARES are given, "
           "and no plan, it is slice.",
       .choices = {"stripe", "slice", "auto"}},
      {.name = "NEZHA_SHARES",
       .kind = Kind::kNumbers,
       .agreed = true,
       .help =
           "With the plan slice: the part of each message that each rail carries, on any scale, "
           "in the order of the rails (ContextOptions::shares); a flare rail has none. A rail with "
           "0 "
           "is a spare for when the others fail. Not set: "
           "equal parts, from which NEZHA_POLICY goes on."},
      {.name = "NEZHA_POLICY",
       .kind = Kind::kChoice,
       .default_value = "model",
       .agreed = true,
       .help =
           "How messages of each size come to be divided (ContextOptions::policy): by a model "
           "of what each rail takes, as the Nezha paper has it, or not by what is learned, which "
           "is also the default where shares are given. shuffle is for tests: at random.",
       .choices = {"model", "paper", "none", "shuffle"}},
      {.name = "NEZHA_TABLE",
       .kind = Kind::kPath,
       .help = "The file of rank 0's data length table (ContextOptions::table): read at the start, "
               "if it is there, and written at the end."},
      {.name = "NEZHA_FLARE_SECRET",
       .kind = Kind::kPath,
       .help =
           "The file with the secret that a rail flare:INTERFACE@MANAGER has in common with its "
           "nezha-manager."},
      {.name = "NEZHA_ALGORITHM",
       .kind = Kind::kChoice,
       .default_value = "auto",
       .agreed = true,
       .help = "The algorithm of each allreduce that chooses none "
               "(AllreduceOptions::setAlgorithm), where it can serve. auto: by its size and the "
               "number of ranks.",
       .choices = {"auto", "ring", "recursive-doubling", "halving-doubling", "direct", "bcube"}},
      {.name = "NEZHA_POLL",
       .kind = Kind::kNumber,
       .default_value = "100",
       .help = "For how many microseconds after each event a caller that waits polls, before it "
               "sleeps. More makes small messages faster where every process has a core to itself; "
               "0 leaves the core to others at once. Read when the first context of the process "
               "is made.",
       .least = 0,
       .most = 1'000'000},
      {.name = "NEZHA_POLLING",
       .kind = Kind::kChoice,
       .default_value = "latency-first",
       .help =
           "How a caller waits for an operation (ContextOptions::polling). latency-first: in each "
           "one it polls for NEZHA_POLL microseconds after whatever comes, and sleeps only then, "
           "since to be woken takes longer than a small message does. The price is CPU time, up to "
           "a core for each caller, though between two looks it yields to whoever wants that core; "
           "in a long ring it polls only toward the end. cpu-first: it polls so in operations of "
           "up to 16 KiB and in barriers, and sleeps at once in larger ones, and in a long ring "
           "leaves what comes alone for twice as long. That leaves CPU time to other threads and "
           "processes; the price is that larger operations may take longer.",
       .choices = {"latency-first", "cpu-first"}},
      {.name = "NEZHA_RAIL_THREADS",
       .kind = Kind::kChoice,
       .default_value = "auto",
       .help =
           "Whether rails have threads of their own, which move what is long: messages of 256 KiB "
           "and more. auto: as many rails as there are cores for, where a process has two or more "
           "of its own; the cores are those of the thread that makes the context, divided by the "
           "ranks of its machine. 0: none has; the callers that wait do all. 1: each has one, on "
           "the cores near to its NIC that are dealt out to it, as far as the kernel tells. A rail "
           "that names cores (tcp:eth0?cpus=0-3,8) has such a thread in any case, on those.",
       .choices = {"auto", "0", "1"}},
      {.name = "NEZHA_RDMA_PINNED",
       .kind = Kind::kNumber,
       .help = "How many bytes of memory the process registers with RDMA devices, beside those of "
               "the connections. What is beyond that is copied, which is slower. 0: registers "
               "nothing. Not set: three quarters of the process's limit of locked memory (ulimit "
               "-l), or any number if it has none.",
       .least = 0,
       .most = int64_t{1} << 50},
      {.name = "NEZHA_GLOO_COLLECTIVES",
       .kind = Kind::kChoice,
       .default_value = "nezha",
       .agreed = true,
       .help = "What carries out the collectives of a program that libnezha_gloo.so is preloaded "
               "into: nezha, or Gloo's own algorithms, which then send by nezha's device.",
       .choices = {"nezha", "gloo"}},
      {.name = "NEZHA_CHECK_POINTERS",
       .kind = Kind::kChoice,
       .default_value = "0",
       .help = "1: before an operation starts, all its memory is checked. What is not mapped, may "
               "not be read or written, or is a GPU's is an error that says so. For debugging: it "
               "adds about half a millisecond to each operation.",
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
                 "The environment variables of nezha. What the program sets itself goes before "
                 "them. An empty one counts as not set; an unknown name that begins with NEZHA_, "
                 "or a value that a variable may not have, is an error.",
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
                   variable.agreed ? "The same on all ranks: rank 0's is taken by those that are "
                                     "given none, and another one is an error."
                                   : "Each rank may have its own.",
                   "    ");
  }
  return text + "\n";
}

}  // namespace nezha
