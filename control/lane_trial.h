// A trial of more for lanes that seem to have become faster.
#pragma once

#include "control/allocation.h"
#include "control/lane_changes.h"
#include "control/lane_model.h"
#include "control/timer.h"

namespace nezha {

// A lane that is early may be faster, or live on what it had saved up: tokens in a bucket, which
// may last for many short messages. Its own times do not tell. So it gets more of a message, twice
// as much more with each window in which it is still early, until it is not; and what operations
// take then shows whether it was worth it.
class LaneTrial {
 public:
  // After a window in which lanes were early by `home`.
  LaneTrial(const Window& window, Allocation home, const LaneChanges& early);

  // The next allocation to try.
  Allocation raise(const Allocation& ran_by);
  // What a window of the trial took: whether it was better than all before.
  bool look_at(const Window& window);
  // Whether the lanes may carry yet more.
  bool are_all_early(const Window& window) const;
  // How the lanes have changed if they took as long as they did; as long as the last one, if they
  // are early: without what they had saved up they would have taken longer.
  LaneChanges changes(const LaneModel& model, const Window& window, const Allocation& ran_by) const;

  bool was_worth_it() const { return was_worth_it_; }
  // The allocation before the trial.
  const Allocation& home() const { return home_; }
  // How long a byte seemed to take, of what it took before.
  double claim() const { return claim_; }

 private:
  LaneSet lanes_ = 0;
  Allocation home_;
  double best_time_ = 0;  // nanoseconds
  double claim_ = 1;
  double more_ = 0;  // by which part the lanes were raised last
  bool was_worth_it_ = false;
};

}  // namespace nezha
