// SPDX-License-Identifier: Apache-2.0
#include "control/line_fit.h"

#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

// A transfer takes 100 nanoseconds, and 2 more for each byte.
Sample sample(double bytes, double off = 1) { return {bytes, (100 + 2 * bytes) * off, 0.02, 1}; }

TEST(LineFit, GoesThroughSamplesWhoseLengthsDiffer) {
  const Line line = fit_line({sample(50), sample(100), sample(200), sample(400)});
  EXPECT_NEAR(line.start, 100, 10);
  EXPECT_NEAR(line.slope, 2, 0.1);
}

TEST(LineFit, AssumesNoStartTimeIfLengthsAreEqual) {
  const Line line = fit_line({sample(100), sample(100)});
  EXPECT_NEAR(line.at(100), 300, 0.1);
  EXPECT_NEAR(line.start, 0, 0.1);
}

// With 4% of noise, these two samples alone would show that bytes cost nothing. A policy would then
// move everything to the lane.
TEST(LineFit, TakesNoSlopeFromNoise) {
  const Line line = fit_line({sample(1000, 0.98), sample(960, 1.02)});
  EXPECT_GT(line.slope, 1.5);
}

TEST(LineFit, CountsAStallForLittle) {
  const Line line = fit_line({sample(100), sample(105), sample(95, 3), sample(100), sample(102)});
  EXPECT_NEAR(line.at(100), 300, 15);
}

TEST(LineFit, IgnoresSamplesWithoutWeight) {
  Sample off = sample(100, 3);
  off.weight = 0;
  EXPECT_NEAR(fit_line({sample(100), off}).at(100), 300, 0.1);
}

TEST(LineFit, ErrorShrinksWithMoreSamples) {
  const Line one = fit_line({sample(100)});
  const Line four = fit_line({sample(100), sample(100), sample(100), sample(100)});
  EXPECT_NEAR(one.error, 0.02, 1e-6);
  EXPECT_NEAR(four.error, 0.01, 1e-6);
}

TEST(LineFit, HasAPositiveSlopeAndNoNegativeStart) {
  const Line flat = fit_line({{100, 300, 0.001, 1}, {1000, 200, 0.001, 1}});
  EXPECT_GT(flat.slope, 0);
  const Line steep = fit_line({{100, 100, 0.001, 1}, {1000, 2000, 0.001, 1}});
  EXPECT_GE(steep.start, 0);
}

}  // namespace
}  // namespace nezha
