// SPDX-License-Identifier: Apache-2.0
// A policy decides how the messages of a size class are divided among lanes, by how long windows of
// them took. It runs only at the coordinator, which sends its decisions to the ranks as integers.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "control/allocation.h"
#include "control/size_class.h"
#include "control/timer.h"
#include "nezha/allreduce.h"

namespace nezha {

enum class ClassState : uint8_t {
  kSearching,  // compares sets of lanes
  kCold,       // one lane carries all
  kHot,        // several lanes carry parts, which are still being sought
  kConverged,  // several lanes carry parts and finish together
};

constexpr bool is_settled(ClassState state) {
  return state == ClassState::kCold || state == ClassState::kConverged;
}

// Why an allocation changed.
enum class Cause : uint8_t {
  kStart,      // it is the class's first
  kSearch,     // the policy compares sets of lanes
  kRebalance,  // the lanes of the set are to finish together
  kDrift,      // the lanes take longer or shorter than they used to
  kProbe,      // the policy tries what is not in use, for a window or a few
  kReturn,     // what was tried was not worth it
  kLanes,      // a lane was lost or came back
  kWay,        // another algorithm, stripes, or to do without stripes was faster
};

// The way that messages go: by an algorithm, and in parts over lanes.
struct Way {
  Algorithm algorithm = Algorithm::kAuto;  // kAuto: the default for the size
  Allocation allocation;
};

// Returns by lane the rate that it can keep up: the bytes of messages per second that go over the
// lane alone. 0: unknown. Rates come from what lanes carried and, if `also_tried`, from rough
// measurements by a few bursts as well.
using LaneRates = std::function<std::vector<double>(bool also_tried)>;
constexpr double kNoRate = -1;  // the rate of a lane that is not a rail

struct Decision {
  Allocation allocation;
  Cause cause = Cause::kStart;
  // More detail than the cause, to be read by people; empty: the cause says all. The text lives as
  // long as the program.
  absl::string_view why = {};
  std::optional<Algorithm> algorithm = std::nullopt;  // nullopt: as before
};

class Policy {
 public:
  // There are at most kMaxLanes lanes, and all are live at first. A lane of `alone`, such as
  // stripes over all rails, carries a whole message or nothing of it. No allocation has such a lane
  // beside others.
  explicit Policy(int lanes, LaneSet alone = 0)
      : lanes_(lanes), live_(all_lanes(lanes)), alone_(alone) {}
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  // Returns the first allocation of a class.
  virtual Allocation open(SizeClass size_class) = 0;
  // Goes on where an earlier run left the class. Its last window ran by `ran_by`.
  virtual void resume(const Window& last, const Way& ran_by, ClassState state) = 0;
  // Returns whether messages of the class may use `algorithm`.
  virtual bool may_use(SizeClass /*size_class*/, Algorithm algorithm) const {
    return algorithm == Algorithm::kAuto;
  }
  // Returns what follows from a window that ran by `ran_by`; nullopt if the class's allocation
  // stays. At least one lane of the allocation took part.
  virtual std::optional<Decision> on_window(const Window& window, const Allocation& ran_by) = 0;
  // Operations of the class overlap, so that nothing can be measured and no experiment could end.
  // Returns the allocation that the class keeps meanwhile; nullopt if its allocation stays.
  virtual std::optional<Allocation> on_silence(SizeClass /*size_class*/) { return std::nullopt; }
  // The set of live lanes has changed. Returns the allocation that follows `current` in an open
  // class.
  virtual Allocation on_lanes(SizeClass size_class, const Allocation& current) = 0;

  virtual ClassState state(SizeClass size_class) const = 0;
  // Returns the number of operations in the class's next window.
  virtual int window_operations(SizeClass size_class) const = 0;

  // Sets the live lanes, of which there is at least one. A call of on_lanes() must follow for every
  // open class.
  void set_live(LaneSet live) { live_ = live; }

  int lanes() const { return lanes_; }
  LaneSet live() const { return live_; }
  LaneSet alone() const { return alone_; }
  // Returns the allocation of messages while nothing is known.
  Allocation unlearned() const { return nezha::unlearned(live_, alone_, lanes_); }
  // Returns the live lanes that carry parts of a message.
  LaneSet sharing() const { return live_ & ~alone_; }
  // Returns the sets of live lanes that allocations may have. Of many lanes they are only the sets
  // of few lanes, and of all but few.
  RecycledVector<LaneSet> usable_sets() const;
  // Returns whether an allocation may have exactly the lanes of `set`, once they are live.
  bool is_possible(LaneSet set) const {
    return set != 0 && ((set & alone_) == 0 || std::has_single_bit(set));
  }

 private:
  bool is_usable(LaneSet set) const { return is_possible(set) && (set & ~live_) == 0; }

  int lanes_;
  LaneSet live_;
  LaneSet alone_;
};

}  // namespace nezha
