// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/training_trace.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "common/command_line/command_line.h"

namespace nezha::bench {
namespace {

std::vector<TracedStep> read(const std::string& text) {
  std::istringstream stream(text);
  return read_training_trace(stream, "a.trace", 4);
}

std::string error_of(const std::string& text) {
  try {
    read(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainingTrace, HasOperationsInSteps) {
  const auto steps = read("# of a net\n1500.5 4096 # fully connected\n\n\t0 4\r\nstep\n7 8");
  ASSERT_EQ(steps.size(), 2);
  ASSERT_EQ(steps[0].size(), 2);
  EXPECT_EQ(steps[0][0].gap.count(), 1500.5);
  EXPECT_EQ(steps[0][0].bytes, 4096);
  EXPECT_EQ(bytes_of(steps[0]), 4100);
  ASSERT_EQ(steps[1].size(), 1);
  EXPECT_EQ(steps[1][0].gap.count(), 7);
}

TEST(TrainingTrace, MayEndWithStep) { EXPECT_EQ(read("1 4\nstep\n1 8\nstep\n").size(), 2); }

TEST(TrainingTrace, ErrorsNameFileAndLine) {
  EXPECT_EQ(error_of("1 4\n1\n").rfind("a.trace:2: not GAP_US BYTES", 0), 0);
  EXPECT_EQ(error_of("1 4 4").rfind("a.trace:1: not GAP_US BYTES", 0), 0);
  EXPECT_EQ(error_of("\n\n-1 4").rfind("a.trace:3: the gap '-1' is not", 0), 0);
  EXPECT_EQ(error_of("nan 4").rfind("a.trace:1: the gap 'nan' is not", 0), 0);
  for (const char* length : {"0", "-4", "6", "4K", "99999999999999999999"}) {
    const std::string begin = std::string("a.trace:1: the length '") + length + "' is not";
    EXPECT_EQ(error_of(std::string("1 ") + length).rfind(begin, 0), 0) << length;
  }
  EXPECT_EQ(error_of("step"), "a.trace:1: 'step' ends a step that has no operations");
  EXPECT_EQ(error_of("1 4\nstep 2"), "a.trace:2: more words after 'step'");
  EXPECT_EQ(error_of("# nothing\n"), "a.trace: the trace has no operations");
}

TEST(TrainingTrace, MissingFile) {
  EXPECT_THROW(read_training_trace("/nonexistent/trace", 4), UsageError);
}

}  // namespace
}  // namespace nezha::bench
