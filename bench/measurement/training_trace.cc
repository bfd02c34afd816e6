// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/training_trace.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/command_line/command_line.h"

namespace nezha::bench {
namespace {

constexpr double kLongestGap = 3.6e9;                // microseconds, an hour
constexpr size_t kMostBytes = size_t{1} << 40;       // an operation's most bytes
constexpr size_t kMostOperations = size_t{1} << 16;  // a step's most: each has memory of its own

std::vector<std::string> words_of(const std::string& line) {
  const std::string before_comment = line.substr(0, line.find('#'));
  return absl::StrSplit(before_comment, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
}

// Throws UsageError with only the reason.
TracedOperation to_operation(const std::vector<std::string>& words, size_t element) {
  if (words.size() != 2) {
    throw UsageError("not GAP_US BYTES, such as '1500 4194304', nor the word 'step'");
  }
  double gap = 0;
  if (!absl::SimpleAtod(words[0], &gap) || !(gap >= 0 && gap <= kLongestGap)) {
    throw UsageError("the gap '" + words[0] + "' is not a number of microseconds up to an hour");
  }
  size_t bytes = 0;
  if (!absl::SimpleAtoi(words[1], &bytes) || bytes == 0 || bytes > kMostBytes ||
      bytes % element != 0) {
    throw UsageError(absl::StrCat("the length '", words[1],
                                  "' is not a number of bytes from 1 to 2^40 that is a multiple of",
                                  " the element's ", element));
  }
  return {std::chrono::duration<double, std::micro>(gap), bytes};
}

// Adds a line's operation to the last step, or ends that step.
void take_line(const std::string& line, size_t element, std::vector<TracedStep>& steps) {
  const auto words = words_of(line);
  if (words.empty()) return;
  if (words[0] != "step") {
    if (steps.back().size() == kMostOperations) {
      throw UsageError(absl::StrCat("the step has more than ", kMostOperations, " operations"));
    }
    steps.back().push_back(to_operation(words, element));
    return;
  }
  if (words.size() > 1) throw UsageError("more words after 'step'");
  if (steps.back().empty()) throw UsageError("'step' ends a step that has no operations");
  steps.emplace_back();
}

}  // namespace

std::vector<TracedStep> read_training_trace(std::istream& text, const std::string& file,
                                            size_t element) {
  std::vector<TracedStep> steps(1);
  size_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    try {
      take_line(line, element, steps);
    } catch (const UsageError& error) {
      throw UsageError(absl::StrCat(file, ":", number, ": ", error.what()));
    }
  }
  if (text.bad()) throw UsageError(file + ": reading it failed");
  if (steps.back().empty()) steps.pop_back();
  if (steps.empty()) throw UsageError(file + ": the trace has no operations");
  return steps;
}

std::vector<TracedStep> read_training_trace(const std::string& file, size_t element) {
  std::ifstream text(file);
  if (!text) throw UsageError(file + ": " + std::strerror(errno));
  return read_training_trace(text, file, element);
}

size_t bytes_of(const TracedStep& step) {
  return std::accumulate(step.begin(), step.end(), size_t{0},
                         [](size_t sum, const auto& each) { return sum + each.bytes; });
}

}  // namespace nezha::bench
