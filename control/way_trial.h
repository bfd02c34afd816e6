// SPDX-License-Identifier: Apache-2.0
// Whether messages of a size class go better another way (control/load_balancer.h): by another
// algorithm, or by turns. Measured, since rates and start-up decide it.
#pragma once

#include <array>

#include "control/data_length_table.h"
#include "control/timer.h"

namespace nezha {

// A trial is some windows the other way. The first is a glance, in which what the way before it has
// left behind shows: it ends the trial if the other one takes far longer, and is taken again if it
// takes longer. Those that follow end it as soon as they are no gain over the usual way, lately and
// for long, though the first of them may be a little slower; and there are many: what links had
// saved up lasts for a while. The last of them must be a twentieth better.
//
// After a trial another one is due: soon, while there are ways that were not tried in this round;
// and then the later, the more rounds there were, the more so if none of them promised anything.
// One of a way that takes twice as long costs less than a hundredth of the time. At once, where
// operations take longer than they did for some windows, or than those by the way that was beaten;
// where the one that had won did not last, others are tried later from then on, until lanes change.
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
  // Lanes are not what they were, and what ways took is forgotten: one is due sooner.
  void hurry();

 private:
  static constexpr int kSoon = 6;    // windows: what a trial left to rest has saved up meanwhile
  static constexpr int kGlance = 6;  // operations: of most that are lost no more is seen

  // A size, and what it took.
  struct Took {
    double bytes = 0;
    double time = 0;  // nanoseconds; 0: nothing was measured
  };
  static Took of(const Window& window);
  static Took mixed(const Took& old, double part, const Took& now);
  static bool is_below(const Took& now, double part, const Took& before);
  // Of all that the way before the trial took, lately and for long.
  bool is_below_all(const Took& now, double part) const;
  Verdict lose();
  void rest(int patience);

  bool is_under_way_ = false;
  TableEntry home_;
  std::array<Took, 2> before_;    // the last windows
  Took usual_;                    // of windows by one way
  Took trial_;                    // of the last windows of this trial, but for the first two
  int windows_ = 0;               // of this trial, but for a first glance that was slow
  bool is_slow_ = false;          // there was one
  Took beaten_;                   // of windows by the way before the one that has won
  bool has_won_ = false;          // the way that the class goes, and has not become slow since
  int since_won_ = 0;             // windows
  int slow_ = 0;                  // windows in a row that took longer than before
  bool is_disappointed_ = false;  // one that had won has become slow soon
  bool was_near_ = false;         // whether a way of this round was no slower
  int left_ = 0;                  // ways that are to be tried in this round
  int wait_ = kSoon;              // windows until one is due
  int patience_ = 0;
};

}  // namespace nezha
