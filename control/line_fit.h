// SPDX-License-Identifier: Apache-2.0
// A line through what was measured of a lane: start-up and slope.
#pragma once

#include "absl/types/span.h"

namespace nezha {

// What a lane takes for its part of a message, in nanoseconds.
struct Line {
  double start = 0;
  double slope = 0;  // per byte, positive
  double error = 0;  // standard error, relative, where it was measured

  double at(double bytes) const { return start + slope * bytes; }
};

struct Sample {
  double bytes = 0;  // positive, as all others
  double time = 0;   // nanoseconds
  double error = 0;  // standard error, relative
  double weight = 0;
};

// Least squares of the relative residuals, in which outliers count for less (Huber's weights, by
// iteration). Bytes are expected to take most of the time, unless samples whose lengths differ by
// enough say otherwise: slopes of noise would move a lot to mend a little, to and fro. There is at
// least one sample, and the first has the typical time.
Line fit_line(absl::Span<const Sample> samples);

}  // namespace nezha
