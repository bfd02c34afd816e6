// Whether messages of a size class go better another way (control/load_balancer.h): by another
// algorithm, or by turns. Measured, since rates and start-up decide it.
#pragma once

#include <array>

#include "control/data_length_table.h"
#include "control/timer.h"

namespace nezha {

// A trial is a few windows the other way. The first is a glance, in which what the way before it
// has left behind shows: it ends the trial if the other one takes far longer. Each that follows
// must be better than those before the trial.
//
// After a trial another one is due: soon, while there are ways that were not tried in this round;
// and then the later, the more rounds there were. One of a way that takes twice as long costs less
// than a hundredth of the time.
class WayTrial {
 public:
  enum class Verdict { kOpen, kWon, kLost };

  // A window that the class stays settled by. Whether a trial is due.
  bool is_due(const Window& window);
  // What the class ran by, and how many other ways there are.
  void begin(const TableEntry& home, int others);
  bool is_under_way() const { return is_under_way_; }
  const TableEntry& home() const { return home_; }
  // Of how many operations its next window is.
  int window_operations() const { return windows_ == 0 ? kGlance : Timer::kOperations; }
  // That window: what comes of the trial.
  Verdict look_at(const Window& window);

  // The class goes on by another allocation.
  void interrupt();
  // Lanes are not what they were: one is due sooner.
  void hurry();

 private:
  static constexpr int kSoon = 2;
  static constexpr int kGlance = 4;  // operations: of most that are lost no more is seen

  // A size, and what it took.
  struct Took {
    double bytes = 0;
    double time = 0;  // nanoseconds; 0: nothing was measured
  };
  static Took of(const Window& window);
  static bool is_below(const Took& now, double part, const Took& before);

  bool is_under_way_ = false;
  TableEntry home_;
  std::array<Took, 2> before_;  // the last windows
  Took usual_;                  // of windows by one way
  int windows_ = 0;             // of this trial
  int left_ = 0;                // ways that are to be tried in this round
  int wait_ = kSoon;            // windows until one is due
  int patience_ = 0;
};

}  // namespace nezha
