// What is known of how long lanes take, learned from windows.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "control/allocation.h"
#include "control/size_class.h"
#include "control/timer.h"

namespace nezha {

// What a lane takes for its part of a message, in nanoseconds: start-up and slope.
struct Line {
  double start = 0;
  double slope = 0;  // per byte, positive
  double error = 0;  // standard error, relative

  double at(double bytes) const { return start + slope * bytes; }
};

// The division of a message after which the lanes of a set finish together.
struct Split {
  LaneSet set = 0;
  Allocation allocation;
  double time = 0;   // nanoseconds
  double error = 0;  // of the time, relative
};

// Lanes slow each other down, and what a byte costs depends on the message: a bucket of tokens
// flatters short ones, algorithms change with the size. So there is a line for each lane in each
// set of lanes and size class, through what was last measured there. The slope comes from what was
// measured of the lane in the set at other lengths, in this class and those next to it; else from
// what it took in this class in smaller sets; without any, all of the time is taken to be the
// bytes', which errs on the side of small steps.
//
// What was not measured is estimated: in between the sets that were, by the number of lanes; and
// from the nearest class, while the class *borrows*.
class LaneModel {
 public:
  explicit LaneModel(int lanes) : lanes_(lanes), changed_(static_cast<size_t>(lanes)) {}

  void learn(const Window& window, const Allocation& ran_by);
  // The set takes other times than before: what was measured of it in this class no longer holds.
  void forget(SizeClass size_class, LaneSet set);
  // A lane takes `ratio` times what it did. In this class the other sets' times follow, until they
  // are measured; elsewhere nothing is concluded from older times.
  void lane_changed(SizeClass size_class, int lane, double ratio);
  void set_borrows(SizeClass size_class, bool borrows) { classes_[size_class].borrows = borrows; }

  // Whether the set was measured, here or where the class borrows.
  bool knows(SizeClass size_class, LaneSet set) const;
  bool has_measured(SizeClass size_class, LaneSet set) const;
  // Larger for what was measured later; 0 for never.
  uint64_t last_measured(SizeClass size_class, LaneSet set) const;

  // None where nothing is known of the lane.
  std::optional<Line> line(SizeClass size_class, LaneSet set, int lane) const;
  // The slowest lane's. None where one is unknown.
  std::optional<Split> predict(SizeClass size_class, double bytes,
                               const Allocation& allocation) const;
  // None where a lane is unknown, or would carry next to nothing: a smaller set does as well.
  std::optional<Split> finish_together(SizeClass size_class, double bytes, LaneSet set) const;

 private:
  struct Point {
    double bytes = 0;
    double time = 0;
    double error = 0;
  };
  struct Observation {
    uint64_t order = 0;
    int operations = 0;
    std::vector<Point> points;  // by lane
  };
  using Observations = std::deque<Observation>;  // the latest last
  struct Class {
    bool borrows = true;
    std::map<LaneSet, Observations> sets;
  };

  bool is_stale(const Observation& observation, LaneSet set) const;
  const Observations* find(SizeClass size_class, LaneSet set) const;
  static Point anchor(const Observations& observations, size_t lane);
  double slope(SizeClass size_class, LaneSet set, size_t lane, const Point& from) const;
  std::vector<double> secants(SizeClass size_class, LaneSet set, size_t lane,
                              const Point& from) const;
  std::vector<double> secants_of_smaller(SizeClass size_class, LaneSet set, size_t lane,
                                         const Point& from) const;
  static std::optional<double> secant(const Point& from, const Point& to);
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
