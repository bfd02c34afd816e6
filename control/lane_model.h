// SPDX-License-Identifier: Apache-2.0
// Predicts how long lanes take, by what windows have shown.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "control/allocation.h"
#include "control/line_fit.h"
#include "control/size_class.h"
#include "control/timer.h"

namespace nezha {

// A division of a message among the lanes of a set, and the time that it is predicted to take.
struct Split {
  LaneSet set = 0;
  Allocation allocation;
  double time = 0;   // nanoseconds
  double error = 0;  // relative to the time
};

// Lanes slow each other down, and the time per byte depends on the message: a token bucket makes
// short messages seem fast, and algorithms change with the size. So the model has a line, a
// start-up time and a time per byte, for each lane in each set of lanes and size class. The line is
// fitted to the latest measurements there. A measurement counts most where the lane was the last to
// finish. A lane that finishes early may use saved tokens or empty queues. Then it seems faster
// than its lasting rate.
//
// The model estimates what was not measured: by interpolation, over the number of lanes, between
// sets that were measured, and from the nearest class.
class LaneModel {
 public:
  explicit LaneModel(int lanes) : lanes_(lanes), changed_(static_cast<size_t>(lanes)) {}

  // Learns from a window. Unless lanes `may_be_early`, a lane that finished before the others is
  // not taken to be faster than before, because it may have used what it had saved up.
  void learn(const Window& window, const Allocation& ran_by, bool may_be_early = true);
  // A byte takes `ratio` times as long on `lane` as before. The lane's times in this class are
  // adjusted. In other classes, older times are no longer used together with new ones.
  void lane_changed(SizeClass size_class, int lane, double ratio);
  // The lanes may have changed by an unknown ratio. Forgets what was measured in this class of sets
  // with any of them. In other classes, older times are no longer used together with new ones.
  void forget(SizeClass size_class, LaneSet lanes);

  // Returns the part by which windows deviate from what was predicted.
  double noise(SizeClass size_class) const { return classes_.at(size_class).noise; }
  bool has_measured(SizeClass size_class, LaneSet set) const;

  // Returns nullopt if nothing is known of the lane.
  std::optional<Line> line(SizeClass size_class, LaneSet set, int lane) const;
  // Returns the division with the time of its slowest lane; nullopt if one of its lanes is unknown.
  std::optional<Split> predict(SizeClass size_class, double bytes,
                               const Allocation& allocation) const;
  // Returns the division of `bytes` by which all lanes of the set finish at the same time. Returns
  // nullopt if one of them is unknown or would carry almost nothing, because a smaller set does as
  // well.
  std::optional<Split> finish_together(SizeClass size_class, double bytes, LaneSet set) const;

 private:
  struct Measured : Sample {
    uint64_t order = 0;  // a change of the lane with this or a higher number makes it stale
  };
  using Observation = std::vector<Measured>;     // indexed by lane
  using Observations = std::deque<Observation>;  // the latest is the last
  struct Class {
    double noise = 0.02;  // the part by which windows deviate from what was predicted
    std::map<LaneSet, Observations> sets;
  };

  RecycledVector<Sample> samples(const Observations& observations, size_t lane) const;
  const Observations* find(SizeClass size_class, LaneSet set) const;
  std::optional<Line> measured(SizeClass size_class, LaneSet set, int lane) const;
  std::optional<Line> interpolated(SizeClass size_class, LaneSet set, int lane) const;
  std::optional<Line> borrowed(SizeClass size_class, LaneSet set, int lane) const;

  int lanes_;
  uint64_t order_ = 0;
  std::vector<uint64_t> changed_;  // indexed by lane: `order_` at its latest change
  std::map<SizeClass, Class> classes_;
};

}  // namespace nezha
