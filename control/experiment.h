// SPDX-License-Identifier: Apache-2.0
// The one mechanism by which a class of messages that has settled tries something else. The *home*
// is the way that the class has settled on. A *candidate* runs in its place until there is a
// verdict: either the candidate becomes the home, or it rests, twice as long after each loss. All
// experiments of a policy are charged to one budget. It limits those that are not expected to be
// better than the home.
#pragma once

#include <algorithm>
#include <map>
#include <utility>

#include "control/policy.h"

namespace nezha {

// Limits what experiments cost: in the long run a hundredth of the time of the operations that rank
// 0 has measured, whether they were reported or not. All times are in nanoseconds.
class Budget {
 public:
  static constexpr double kPart = 0.01;

  void ran(const Window& window) {
    const auto reported = static_cast<uint64_t>(window.operations);
    total_ += static_cast<double>(slowest(window)) *
              static_cast<double>(window.since_last.value_or(reported));
  }
  void charge(double cost) { spent_ += cost; }
  // An experiment may cost more than was predicted, so twice as much must be left.
  bool affords(double cost) const { return spent_ + 2 * cost <= kPart * total_; }
  // Returns the part of the operations' time that experiments have cost.
  double spent() const { return total_ == 0 ? 0 : spent_ / total_; }

 private:
  double total_ = 0;
  double spent_ = 0;
};

// Records how long candidates of a class rest after they lost, in operations of the class with a
// reported reading.
class Rests {
 public:
  // Names what a candidate tries.
  struct Key {
    Algorithm algorithm = Algorithm::kAuto;
    LaneSet set = 0;
    bool is_more = false;  // the set is the home's, and some of its lanes are given more

    auto operator<=>(const Key&) const = default;
  };

  // Counts the operations of a window that the class ran by its home.
  void ran(const Window& window) { now_ += window.operations; }
  bool is_due(const Key& key) const;
  // Returns whether the candidate has not lost yet.
  bool is_fresh(const Key& key) const;
  void lost(const Key& key);
  // Forgets the candidate's losses, because their reason no longer holds.
  void forget(const Key& key) { rests_.erase(key); }
  // Forgets all losses, because other lanes are live, or a lane takes other times than before.
  void forget() { rests_.clear(); }

 private:
  static constexpr int kShortest = 80;
  static constexpr int kLongest = 2560;

  struct Rest {
    int operations = 0;
    int64_t until = 0;
  };
  int64_t now_ = 0;
  std::map<Key, Rest> rests_;
};

class Experiment {
 public:
  enum class Verdict { kOpen, kWon, kLost };
  // The number of operations in the first window, after which a candidate that is far slower loses.
  static constexpr int kGlance = 3;

  // `home_time` is what an operation takes by the home, in nanoseconds.
  Experiment(Way home, double home_time, Way candidate)
      : home_(std::move(home)), candidate_(std::move(candidate)), home_time_(home_time) {}

  const Way& home() const { return home_; }
  const Way& candidate() const { return candidate_; }
  // Returns what the experiment has cost, in nanoseconds: the time by which the candidate took
  // longer than the home, and the time that changes of the plan took.
  double cost() const {
    return std::max(0.0, more_) + (kChanges + divisions_ * kChanges / 2) * home_time_;
  }
  // Returns what the first window is predicted to cost, given what an operation takes by the home
  // and by the candidate, in nanoseconds.
  static double cost_of_glance(double home, double candidate) {
    return (kGlance + kLag) * std::max(0.0, candidate - home) + kChanges * home;
  }
  Rests::Key key() const {
    return {candidate_.algorithm, lanes_of(candidate_.allocation), is_more()};
  }
  // Returns whether the candidate divides messages among the home's lanes in another way.
  bool is_more() const {
    return candidate_.algorithm == home_.algorithm &&
           lanes_of(candidate_.allocation) == lanes_of(home_.allocation);
  }
  // Returns the number of operations in the experiment's next window.
  int window_operations(SizeClass size_class) const;

  // Takes a window that ran by the candidate into account. An operation would have taken `home`
  // nanoseconds by the home. `promised` is what it is predicted to take by the candidate's lanes
  // once they finish together; 0 if that is unknown.
  Verdict look_at(const Window& window, double home, double promised);
  // Continues with another division of the candidate's lanes, which the next windows measure.
  // Returns false if there were too many divisions already.
  bool divide(const Allocation& allocation);

 private:
  // Ranks take up and leave a plan while operations go on, so that this many more operations run by
  // the candidate than its windows have.
  static constexpr int kLag = 3;
  // The change to the candidate and the change back together cost this part of an operation's time.
  static constexpr double kChanges = 0.3;

  Way home_;
  Way candidate_;
  int windows_ = 0;
  int divisions_ = 0;  // the number of divisions that another one has replaced
  // What ran by the present division, without the first window. Times are in nanoseconds.
  int operations_ = 0;
  double bytes_ = 0;
  double took_ = 0;
  double home_took_ = 0;  // what it would have taken by the home
  double home_time_;      // the latest prediction of what an operation takes by the home
  double more_ = 0;       // the time by which its operations took longer than by the home
};

}  // namespace nezha
