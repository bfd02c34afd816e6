// SPDX-License-Identifier: Apache-2.0
// The Timer: how long the lanes of an operation took, from what every rank measured. No clock.
#pragma once

#include <cstdint>
#include <iterator>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/hash_map.h"
#include "common/recycled.h"
#include "control/allocation.h"
#include "control/plan_agreement.h"
#include "control/size_class.h"

namespace nezha {

using LaneTimes = RecycledVector<Nanos>;  // by lane

// What one rank measured of one operation.
struct Reading {
  OperationId operation;
  uint64_t bytes = 0;
  // Of the size class: allocations are numbered from 1 on as they follow each other; 0 says that
  // the class had none of its own.
  uint32_t allocation = 0;
  // By lane: from when this rank entered the operation to when the lane was through on it. 0 for a
  // lane that took no part; 0 for all where the measurement says nothing, since this rank's
  // operation overlapped another, say: then those of the other ranks do not count either.
  LaneTimes lanes;
  // From when this rank was through on the operation before it to when it entered this one. The
  // longest there is where that was none of the same class: its lateness is not this one's.
  Nanos idle = std::numeric_limits<Nanos>::max();
};

struct LaneTime {
  Nanos mean = 0;   // 0: took no part
  Nanos error = 0;  // the standard error of the mean
};

// What a run of operations of one size class by one allocation took.
struct Window {
  SizeClass size_class = 0;
  uint64_t bytes = 0;  // the mean
  uint32_t allocation = 0;
  std::vector<LaneTime> lanes;
  int operations = 0;  // 0: there were only such as said nothing, and no lane has a time
};

// How long the operations of a window took: as long as their slowest lanes.
Nanos slowest(const Window& window);
// The lanes that took part. One that has a part may take none: slices are cut at cache lines, and
// a short message leaves it nothing.
LaneSet took_part(const Window& window);

// A rank's raw duration is full of other ranks' lateness. The last to enter waits for nobody: what
// a lane took is the minimum over ranks. It is so for the operations that plan_agreement.h names,
// and for no others.
//
// Where no rank does anything else, an operation follows the one before it at once on all of them.
// Then a rank is late because its part of that one took long: its lateness is a cost, which the
// minimum passes over in one operation as in the next. What the operation took is then the mean
// over ranks, which has each of them once, and lanes took as much longer than their minima as makes
// the slowest one take that: what a rank is late by delays all lanes alike, and in their means it
// would draw a division towards equal parts. Below 128 KiB, where lateness is a good part of all
// that lanes take, it is their means nonetheless. At once: on the average the ranks were idle for
// an eighth of what the operation took at most; or for a third of it and 20 us, which a program's
// clock and the library's own work take between two operations. And none was for four times as
// long: of many ranks one that is late by far would hardly show in the average.
//
// The mean of a window leaves out three of ten at either end. A rank that was not scheduled or a
// packet that was lost makes an outlier ten times as long, a bucket of tokens that filled up in a
// pause makes a short one; the middle four vary less than the median alone. A short window, of
// which fewer may be left out, grows while so many operations took half as long again as the
// median, or as much less, that one more could win it.
//
// Where operations overlap for long, none says anything, and what a class is trying would never
// end. A window of no lane's time tells of kSilent in a row.
//
// Sizes of a class differ by up to a factor of two. They are averaged in the same way, and
// durations are those of that size: scaled in proportion where they then agree better, as they are
// where start-up decides.
class Timer {
 public:
  static constexpr int kOperations = 10;  // a window's, as in Nezha §IV-B
  // Operations that some ranks have not told of. The oldest is forgotten when there are more.
  static constexpr size_t kPending = 1024;
  static constexpr int kSilent = 64;

  Timer(int ranks, int lanes);

  // Of how many operations the windows of a class are. At least 1.
  void set_operations(SizeClass size_class, int operations);

  // Readings come in any order. The window that this one completes, if it does. An error if it is
  // no reading of an operation of these ranks and lanes, or contradicts another rank's.
  absl::StatusOr<std::optional<Window>> add(int rank, const Reading& reading);

  size_t pending() const { return pending_.size(); }
  uint64_t forgotten() const { return forgotten_; }

 private:
  struct Operation {
    Reading shortest;  // by lane, of those that have told
    // Over all ranks: what those that have told add to it.
    LaneTimes means;
    Nanos took = 0;             // the slowest lane's, on each rank another one
    Nanos idle = 0;             // likewise
    Nanos most_idle = 0;        // of those that have told
    bool is_at_once = true;     // after one of its class, on those that have told
    RecycledVector<bool> told;  // by rank
    int missing = 0;            // ranks
  };
  struct Gathering {
    uint32_t allocation = 0;
    RecycledVector<Reading> operations;
    int silent = 0;  // that said nothing, since one did
  };
  using Pending = std::list<Operation, RecyclingAllocator<Operation>>;  // the oldest first

  void join(Operation& operation, const Reading& reading) const;
  Reading joined(Operation& operation) const;
  absl::Status check(int rank, const Reading& reading) const;
  Pending::iterator find_or_add(const Reading& reading);
  std::optional<Window> gather(const Reading& reading);

  int ranks_;
  size_t lanes_;
  Pending pending_;
  HashMap<OperationId, Pending::iterator> by_id_;
  uint64_t forgotten_ = 0;
  std::map<SizeClass, int> length_;  // of windows, in operations, where it is not kOperations
  std::map<SizeClass, Gathering> gathering_;
};

}  // namespace nezha
