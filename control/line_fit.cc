// SPDX-License-Identifier: Apache-2.0
#include "control/line_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace nezha {
namespace {

// A sample whose residual is more than this many errors counts for less.
constexpr double kOutlier = 1.5;
constexpr int kRounds = 6;
// The start-up's part of a lane's time is assumed to be 0 with this standard deviation.
constexpr double kStartError = 0.3;
constexpr double kMostStart = 0.98;

// The parts of the typical sample's time that start-up and bytes take.
struct Parts {
  double start = 0;
  double bytes = 1;
};

// The normal equations of the two parts.
class Equations {
 public:
  // Adds the equation start * a + bytes * b = 1.
  void add(double a, double b, double weight) {
    aa_ += weight * a * a;
    ab_ += weight * a * b;
    bb_ += weight * b * b;
    a_ += weight * a;
    b_ += weight * b;
  }
  Parts solve() const {
    const double start = (a_ * bb_ - b_ * ab_) / (aa_ * bb_ - ab_ * ab_);
    Parts parts{std::clamp(start, 0.0, kMostStart), 0};
    parts.bytes = std::max(1 - kMostStart, (b_ - ab_ * parts.start) / bb_);
    return parts;
  }

 private:
  double aa_ = 1 / (kStartError * kStartError);
  double ab_ = 0;
  double bb_ = 0;
  double a_ = 0;
  double b_ = 0;
};

}  // namespace

Line fit_line(absl::Span<const Sample> samples) {
  const Sample& typical = samples.front();
  Parts parts;
  double error = 0;
  for (int round = 0; round < kRounds; ++round) {
    Equations equations;
    double weights = 0;
    double squares = 0;
    for (const Sample& sample : samples) {
      const double a = typical.time / sample.time;
      const double b = a * sample.bytes / typical.bytes;
      const double residual = round == 0 ? 0 : parts.start * a + parts.bytes * b - 1;
      const double off = std::fabs(residual) / (kOutlier * sample.error);
      const double weight = sample.weight / (sample.error * sample.error) / std::max(1.0, off);
      equations.add(a, b, weight);
      weights += weight;
      squares += weight * weight * (sample.error * sample.error + residual * residual);
    }
    parts = equations.solve();
    error = std::sqrt(squares) / weights;
  }
  return {parts.start * typical.time, parts.bytes * typical.time / typical.bytes, error};
}

}  // namespace nezha
