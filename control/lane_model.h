// SPDX-License-Identifier: Apache-2.0
// What is known of how long lanes take, learned from windows.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "control/allocation.h"
#include "control/line_fit.h"
#include "control/size_class.h"
#include "control/timer.h"

namespace nezha {

// The division of a message after which the lanes of a set finish together.
struct Split {
  LaneSet set = 0;
  Allocation allocation;
  double time = 0;   // nanoseconds
  double error = 0;  // of the time, relative
};

// Lanes slow each other down, and what a byte costs depends on the message: a bucket of tokens
// flatters short ones, algorithms change with the size. So there is a line for each lane in each
// set of lanes and size class, fitted to what was last measured there, and less to what was in its
// smaller sets and in the classes next to it. A lane is trusted most where it was through last: one
// that ends early lives on what it has saved up, in buckets of tokens and empty queues, and seems
// faster than it can go on being.
//
// What was not measured is estimated: in between the sets that were, by the number of lanes; and
// from the nearest class, while the class *borrows*.
class LaneModel {
 public:
  explicit LaneModel(int lanes) : lanes_(lanes), changed_(static_cast<size_t>(lanes)) {}

  // Where lanes were found to finish together, one that did not and was early has lived on what it
  // had saved up: it is not believed to be faster than it was, or, at first, more than twice as
  // fast as the last one, unless it `may_be_early`.
  void learn(const Window& window, const Allocation& ran_by, bool may_be_early = true);
  // What another model knows of the class's sets that this one does not: as they were when they
  // were last measured there, but for taking `ratio` times as long.
  void assume(SizeClass size_class, const LaneModel& other, double ratio);
  // The set takes other times than before: what was measured of it in this class no longer holds.
  void forget(SizeClass size_class, LaneSet set);
  // A byte takes `ratio` times what it did on a lane. In this class its times follow; elsewhere
  // nothing is concluded from older times.
  void lane_changed(SizeClass size_class, int lane, double ratio);
  void set_borrows(SizeClass size_class, bool borrows) { classes_[size_class].borrows = borrows; }

  // By which part windows are off what is expected.
  double noise(SizeClass size_class) const { return classes_.at(size_class).noise; }
  // Whether the set was measured, here or where the class borrows.
  bool knows(SizeClass size_class, LaneSet set) const;
  bool has_measured(SizeClass size_class, LaneSet set) const;
  // Windows since the set was measured in the class.
  uint64_t age(SizeClass size_class, LaneSet set) const;

  // None where nothing is known of the lane.
  std::optional<Line> line(SizeClass size_class, LaneSet set, int lane) const;
  // The slowest lane's. None where one is unknown.
  std::optional<Split> predict(SizeClass size_class, double bytes,
                               const Allocation& allocation) const;
  // None where a lane is unknown, or would carry next to nothing: a smaller set does as well.
  std::optional<Split> finish_together(SizeClass size_class, double bytes, LaneSet set) const;
  // Likewise, if they were as fast together as each is alone.
  std::optional<Split> unhindered(SizeClass size_class, double bytes, LaneSet set) const;

 private:
  struct Measured : Sample {
    uint64_t order = 0;  // a later change of the lane makes it stale
  };
  struct Observation {
    uint64_t order = 0;
    std::vector<Measured> lanes;
  };
  using Observations = std::deque<Observation>;  // the latest last
  struct Class {
    bool borrows = true;
    double noise = 0.02;  // by which part windows are off what is expected
    std::map<LaneSet, Observations> sets;
  };

  using LineOf = absl::FunctionRef<std::optional<Line>(int lane)>;
  std::optional<Split> together(double bytes, LaneSet set, LineOf line_of) const;
  uint64_t last_measured(SizeClass size_class, LaneSet set) const;
  RecycledVector<Sample> samples(const Observations& observations, size_t lane) const;
  const Observations* find(SizeClass size_class, LaneSet set) const;
  std::optional<Line> measured(SizeClass size_class, LaneSet set, int lane) const;
  std::optional<Line> interpolated(SizeClass size_class, LaneSet set, int lane) const;
  std::optional<Line> borrowed(SizeClass size_class, LaneSet set, int lane,
                               bool also_guesses) const;

  int lanes_;
  uint64_t order_ = 0;
  std::vector<uint64_t> changed_;  // by lane: the order as of its last change
  std::map<SizeClass, Class> classes_;
};

}  // namespace nezha
