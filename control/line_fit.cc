// SPDX-License-Identifier: Apache-2.0
#include "control/line_fit.h"

#include <algorithm>
#include <cmath>

namespace nezha {
namespace {

// A sample whose residual is more than this many errors counts for less.
constexpr double kOutlier = 1.5;
constexpr int kRounds = 6;
// The start-up's part of a lane's time is assumed to be 0 with this standard deviation.
constexpr double kStartError = 0.3;
constexpr double kMostStart = 0.98;

}  // namespace

Line fit_line(absl::Span<const Sample> samples) {
  const Sample& typical = samples.front();
  double start = 0;  // the part of the typical sample's time that the start-up takes
  double bytes = 1;  // the part that its bytes take
  double error = 0;
  for (int round = 0; round < kRounds; ++round) {
    // These sums are the normal equations of the samples' equations start * a + bytes * b = 1.
    double aa = 1 / (kStartError * kStartError);
    double ab = 0, bb = 0, a1 = 0, b1 = 0;
    double weights = 0;
    double squares = 0;
    for (const Sample& sample : samples) {
      const double a = typical.time / sample.time;
      const double b = a * sample.bytes / typical.bytes;
      const double residual = round == 0 ? 0 : start * a + bytes * b - 1;
      const double off = std::fabs(residual) / (kOutlier * sample.error);
      const double weight = sample.weight / (sample.error * sample.error) / std::max(1.0, off);
      aa += weight * a * a;
      ab += weight * a * b;
      bb += weight * b * b;
      a1 += weight * a;
      b1 += weight * b;
      weights += weight;
      squares += weight * weight * (sample.error * sample.error + residual * residual);
    }
    start = std::clamp((a1 * bb - b1 * ab) / (aa * bb - ab * ab), 0.0, kMostStart);
    bytes = std::max(1 - kMostStart, (b1 - ab * start) / bb);
    error = std::sqrt(squares) / weights;
  }
  return {start * typical.time, bytes * typical.time / typical.bytes, error};
}

}  // namespace nezha
