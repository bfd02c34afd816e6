// SPDX-License-Identifier: Apache-2.0
// Which division of a message is the best, as far as is known.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "control/lane_model.h"
#include "control/policy.h"

namespace nezha {

// The rates at which lanes go on for long, by lane: so many bytes of messages that go over the lane
// alone are done in a second; 0: unknown. As what lanes carried has shown them, or `also` roughly,
// by a few bursts.
using LaneRates = std::function<std::vector<double>(bool also_tried)>;
constexpr double kNoRate = -1;  // of a lane that is not to be waited for

// Which sets of lanes a class's messages may go over, which of them and which division of it the
// model predicts to take least, and by how much less it must be to be chosen. What a lane is to
// carry grows step by step.
class SplitChoice {
 public:
  // Shorter messages are start-up for the most part: two TCP networks help from 8 KiB on.
  static constexpr SizeClass kShort = 13;
  // Shorter messages over stripes are not cut (takes_turns() in collectives/hosts/choice.h).
  static constexpr SizeClass kStriped = 16;
  static constexpr double kFarFaster = 2;  // a rate is far higher than another

  // Of the policy's lanes. Both stay where they are. `rates` may be null.
  SplitChoice(const Policy& lanes, const LaneModel& model, LaneRates rates = nullptr);

  // Nothing is known of the class's messages.
  void open(SizeClass size_class) { classes_[size_class] = {}; }
  // It is to be seen again whether they are long enough for each lane to get some.
  void look_again(SizeClass size_class) { classes_[size_class].is_cut = true; }
  // A window's operations ran by that allocation, which was a probe or not.
  void saw(const Window& window, const Allocation& allocation, bool is_probe);
  // A byte takes `ratio` times as long on the lane as it did.
  void became_slower(int lane, double ratio) { carried_[static_cast<size_t>(lane)] /= ratio; }

  // In what follows, open() was called for the class.

  // Whether messages may go over several lanes.
  bool is_spread(SizeClass size_class) const;
  // Whether they may go over that set.
  bool suits(SizeClass size_class, LaneSet set) const;
  // The part of a probed lane that the model would give nothing.
  double probe_part(SizeClass size_class) const { return classes_.at(size_class).probe_part; }

  // What takes least over lanes of `among`; none where nothing is known. `only_measured`: in this
  // class, over that set.
  std::optional<Split> best(SizeClass size_class, double bytes, LaneSet among,
                            bool only_measured) const;
  // Whether it takes less than the current one by that part. What is settled is left for less only
  // if that lasts.
  bool is_better(bool is_settled, double bytes, const Split& candidate, const Split& current,
                 double by) const;
  // The allocation itself, or one on the way to it where a lane would carry too much more than it
  // ever has: the others carry the rest. None where all of them would.
  std::optional<Allocation> in_steps(SizeClass size_class, double bytes,
                                     const Allocation& allocation) const;

 private:
  struct Class {
    bool is_cut = true;  // messages are long enough for each lane to get some
    double probe_part = 1. / 256;
    std::vector<double> carries;  // by lane, in bytes: in the last window but for probes'
    // By lane, alone: windows in a row that its rate forbids, of which a long one counts for many;
    // and what operations took in the last one but for probes'.
    std::map<int, int> forbidden;
    std::map<int, double> took;
  };

  void saw_carried(const Window& window, const Allocation& ran_by, bool is_probe);
  void saw_alone(const Window& window, int lane, bool is_probe);
  // Whether large messages rather go over that set.
  bool is_steady(LaneSet set, double bytes) const;
  double most(SizeClass size_class, int lane, double bytes) const;
  std::optional<std::vector<double>> rates() const;
  double least_time(SizeClass size_class, LaneSet set, double bytes,
                    const std::vector<double>& rates) const;
  bool is_far_faster(SizeClass size_class, LaneSet set, const Split& current) const;

  const Policy& lanes_;
  const LaneModel& model_;
  LaneRates rates_;
  std::vector<double> carried_;  // by lane: the most bytes that it was seen to carry in time
  std::map<SizeClass, Class> classes_;
};

}  // namespace nezha
