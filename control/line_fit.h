// SPDX-License-Identifier: Apache-2.0
// Fits a line to the measurements of a lane: a start-up time and a time per byte.
#pragma once

#include "absl/types/span.h"

namespace nezha {

// The time that a lane takes for its part of a message, in nanoseconds.
struct Line {
  double start = 0;
  double slope = 0;  // per byte; positive
  double error = 0;  // the relative standard error where the lane was measured

  double at(double bytes) const { return start + slope * bytes; }
};

struct Sample {
  double bytes = 0;  // all members are positive
  double time = 0;   // nanoseconds
  double error = 0;  // the relative standard error
  double weight = 0;
};

// Minimises the squares of the relative residuals by iteration, with Huber's weights, so that
// outliers count for less. Bytes are assumed to take most of the time, unless samples of different
// enough lengths show otherwise. Without that assumption the noise of samples of similar lengths
// would decide the slope, and parts would move to and fro. Needs at least one sample; the first one
// has the typical time.
Line fit_line(absl::Span<const Sample> samples);

}  // namespace nezha
