// SPDX-License-Identifier: Apache-2.0
// What decides how the messages of a size class are divided among lanes, from how long windows of
// them took. It runs at the coordinator alone, which sends the ranks what it decides: integers.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "control/allocation.h"
#include "control/lane_model.h"
#include "control/size_class.h"
#include "control/timer.h"
#include "nezha/allreduce.h"

namespace nezha {

enum class ClassState : uint8_t {
  kSearching,  // which lanes are to carry it
  kCold,       // all on one lane
  kHot,        // several lanes; how much each is to carry is being found
  kConverged,  // several lanes, which finish together
};

constexpr bool is_settled(ClassState state) {
  return state == ClassState::kCold || state == ClassState::kConverged;
}

// Why an allocation changed.
enum class Cause : uint8_t {
  kStart,      // the class's first
  kSearch,     // compares sets of lanes
  kRebalance,  // lets the lanes of the set finish together
  kDrift,      // the lanes do not take what they used to
  kProbe,      // looks at what is not in use, for a window or a few
  kReturn,     // from a probe, a trial or a move that was not worth it
  kLanes,      // a lane was lost or came back
  kWay,        // goes on another way, which a probe found to be better
};

struct Decision {
  Allocation allocation;
  Cause cause = Cause::kStart;
  // For people, in more detail than the cause; empty: the cause says all. Lives as long as the
  // program.
  absl::string_view why = {};
  std::optional<Algorithm> algorithm = std::nullopt;  // none: as before
};

class Policy {
 public:
  // All lanes are live at first. At most kMaxLanes. The lanes of `alone` carry a whole message or
  // nothing of it, as stripes over all rails do: no allocation has one beside other lanes.
  explicit Policy(int lanes, LaneSet alone = 0)
      : lanes_(lanes), live_(all_lanes(lanes)), alone_(alone) {}
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  // The first allocation of a class.
  virtual Allocation open(SizeClass size_class) = 0;
  // Goes on where an earlier run left the class, or another policy: its last window ran by that
  // allocation.
  virtual void resume(const Window& last, const Allocation& ran_by, ClassState state) = 0;
  // What it has learned of lanes; null if it learns nothing of them.
  virtual const LaneModel* model() const { return nullptr; }
  // After resume(): what another policy has learned of messages that went another way, for sets of
  // lanes of which this one knows nothing. How much longer they take this way shows in the last
  // window.
  virtual void assume(const Window& /*last*/, const Allocation& /*ran_by*/,
                      const LaneModel& /*other*/) {}
  // What follows from a window that ran by that allocation: the next one, none if it stays. Some
  // lane of the allocation took part.
  virtual std::optional<Decision> on_window(const Window& window, const Allocation& ran_by) = 0;
  // Operations of the class overlap, and say nothing: what it was trying might go on for ever. The
  // allocation by which it goes on until they say something; none if it stays.
  virtual std::optional<Allocation> on_silence(SizeClass /*size_class*/) { return std::nullopt; }
  // The allocation that every class is to have; none if windows decide.
  virtual std::optional<Allocation> only() const { return std::nullopt; }
  // The lanes that are live are others: the allocation that follows `current` in an open class.
  virtual Allocation on_lanes(SizeClass size_class, const Allocation& current) = 0;

  virtual ClassState state(SizeClass size_class) const = 0;
  // Of how many operations the class's next window is.
  virtual int window_operations(SizeClass size_class) const = 0;

  // At least one. on_lanes() is to follow for every open class.
  void set_live(LaneSet live) { live_ = live; }

  int lanes() const { return lanes_; }
  LaneSet live() const { return live_; }
  LaneSet alone() const { return alone_; }
  // What messages run by while nothing is known.
  Allocation unlearned() const { return nezha::unlearned(live_, alone_, lanes_); }
  // The live lanes that carry parts of a message.
  LaneSet sharing() const { return live_ & ~alone_; }
  // Those that an allocation may have and that are worth a look: of many lanes few, or all but few.
  RecycledVector<LaneSet> usable_sets() const;
  // Whether an allocation may have these lanes and no others, once they are live.
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
