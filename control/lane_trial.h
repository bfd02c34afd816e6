// SPDX-License-Identifier: Apache-2.0
// A trial of more for lanes that seem to have become faster.
#pragma once

#include <vector>

#include "control/allocation.h"
#include "control/lane_changes.h"
#include "control/lane_model.h"
#include "control/timer.h"

namespace nezha {

// What the latest of the lanes took of the time of the slowest one of all; 0 if none took part.
double part_of_slowest(const Window& window, LaneSet lanes);

// A lane that is early may be faster, or live on what it had saved up: tokens in a bucket, which
// may last for many short messages. Its own times do not tell. So it gets more of a message, twice
// as much more with each window in which it is still early, until it is not; and what operations
// take then shows whether it was worth it.
//
// Once savings are spent, operations take as much longer as the lane gets more, until the trial is
// over. So after a trial that was not worth it the next one begins *gently*: by a little more, for
// about as long as a bucket may last, or for some windows where it would last for too long. A lane
// that is far earlier than others with that has become faster; most often one does that is well
// earlier than they in a window that began when half of what a bucket holds was spent. It then gets
// what it had before it became slower, if that is more, and no more: what comes back is most often
// as it was.
class LaneTrial {
 public:
  // Bytes of messages: more than a port's bucket holds.
  static constexpr double kMostSaved = 48 << 10;

  // After a window in which lanes were early by `home`. `before`: by lane, which part of messages
  // it had before it became slower, 0 if it did not; or empty.
  LaneTrial(const Window& window, Allocation home, LaneSet early, bool is_gentle,
            std::vector<double> before = {});

  // The next allocation to try.
  Allocation raise(const Allocation& ran_by);
  // Whether that is by a little more, and nothing is concluded yet.
  bool is_gentle() const { return savings_ > 0; }
  // What a window of the trial took: whether it was better than all before.
  bool look_at(const Window& window, const Allocation& ran_by);
  // Whether the lanes may carry yet more.
  bool may_go_on(const Window& window) const;
  // Whether it is one of them that was late.
  bool was_late(const Window& window) const;
  // How the lanes have changed if they took as long as they did; as long as the last one, if they
  // are early: without what they had saved up they would have taken longer.
  LaneChanges changes(const LaneModel& model, const Window& window, const Allocation& ran_by) const;

  bool was_worth_it() const { return was_worth_it_; }
  // Whether the lanes have been given what they had before.
  bool is_back() const { return is_back_; }
  // The allocation before the trial.
  const Allocation& home() const { return home_; }

 private:
  bool is_as_long(const Window& window) const;
  Allocation at_least_before(const Allocation& raised);
  double least_more(const Window& window, const Allocation& ran_by) const;

  LaneSet lanes_ = 0;
  Allocation home_;
  std::vector<double> before_;
  double best_time_ = 0;  // nanoseconds
  double savings_ = 0;    // bytes that are yet to be spent
  int gentle_ = 0;        // windows
  double more_ = 0;       // by which part the lanes were raised last
  bool was_worth_it_ = false;
  bool is_back_ = false;
};

}  // namespace nezha
