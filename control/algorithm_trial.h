// Whether messages of a size class go faster by the other of two algorithms (collectives/hosts/
// choice.h): measured, since rates and start-up decide it.
#pragma once

#include <array>

#include "control/data_length_table.h"
#include "control/timer.h"

namespace nezha {

// A trial is a few windows by the other algorithm and the same allocation. The first is a glance,
// in which what the algorithm before it has left behind shows: it ends the trial if the other one
// takes far longer. Each that follows must be better than those before the trial. After a trial
// another one is due, of whichever algorithm is the other then, and the later the more there were:
// one of an algorithm that takes twice as long costs less than a hundredth of the time.
class AlgorithmTrial {
 public:
  enum class Verdict { kOpen, kWon, kLost };

  // The first is due after so many windows that the class was settled by: where there are several
  // lanes, not before those have been found to be of use.
  explicit AlgorithmTrial(int lanes) : wait_(lanes == 1 ? kSoon : kLate) {}

  // A window that the class stays settled by. Whether a trial is due.
  bool is_due(const Window& window);
  // What the class ran by.
  void begin(const TableEntry& home);
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
  static constexpr int kLate = 16;
  static constexpr int kGlance = 4;  // operations: of most that are lost no more is seen

  // A size, and what it took.
  struct Took {
    double bytes = 0;
    double time = 0;  // nanoseconds; 0: nothing was measured
  };
  static Took of(const Window& window);

  bool is_under_way_ = false;
  TableEntry home_;
  std::array<Took, 2> before_;  // the last windows
  int windows_ = 0;             // of this trial
  int wait_;                    // windows until one is due
  int patience_ = 0;
};

}  // namespace nezha
