// SPDX-License-Identifier: Apache-2.0
// The Timer works out how long the lanes of an operation took from what every rank measured. It has
// no clock.
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

using LaneTimes = RecycledVector<Nanos>;  // indexed by lane

// What one rank measured of one operation.
struct Reading {
  OperationId operation;
  uint64_t bytes = 0;
  // Number of the size class's allocation. A class numbers its allocations from 1 on; 0: the class
  // had none of its own.
  uint32_t allocation = 0;
  // By lane: time from when this rank entered the operation until the lane had finished its part on
  // this rank. 0 for a lane that took no part. All are 0 if the measurement is of no use, for
  // example because the operation overlapped another one on this rank; then the other ranks'
  // readings of the operation do not count either.
  LaneTimes lanes;
  // Time from when this rank finished the operation before this one until it entered this one. The
  // largest Nanos if that operation was of another class: its lateness does not carry over to this
  // one.
  Nanos idle = std::numeric_limits<Nanos>::max();
};

struct LaneTime {
  Nanos mean = 0;   // 0: took no part
  Nanos error = 0;  // the standard error of the mean
};

// What consecutive operations of one size class took by one allocation.
struct Window {
  SizeClass size_class = 0;
  uint64_t bytes = 0;  // the mean
  uint32_t allocation = 0;
  std::vector<LaneTime> lanes;
  int operations = 0;  // 0: none had a usable measurement, and no lane has a time
  // The class's operations that rank 0 has measured since the window before this one. Only a sample
  // of them may have been reported. The Timer leaves this to the Coordinator; nullopt: nobody has
  // counted them.
  std::optional<uint64_t> since_last = std::nullopt;
};

// Returns how long the operations of a window took, which is what their slowest lane took.
Nanos slowest(const Window& window);
// Returns the lanes that took part. A lane with a part in the allocation may have taken none:
// slices are cut at cache lines, and a short message may leave nothing for it.
LaneSet took_part(const Window& window);

// The duration that a rank measures includes other ranks' lateness. The last rank to enter an
// operation waits for nobody, so a lane's time is the minimum over ranks. This holds only for the
// operations that plan_agreement.h names.
//
// The minimum is wrong for back-to-back operations, which every rank enters as soon as it has
// finished the one before. There a rank is late because its part of the earlier operation took
// long. That lateness is a cost, but the minimum leaves it out of both operations. Therefore:
//
// - A back-to-back operation took the mean over ranks of what its slowest lane took on each. Each
//   lane's minimum is scaled by the same factor, so that the slowest lane takes that mean.
//   (Lateness delays all lanes of a rank alike, so the lanes' own means would draw a division
//   towards equal parts.)
// - Below 128 KiB, where lateness is a large part of a lane's time, lanes take their own means.
// - An operation is back-to-back if the ranks were idle, on average, for at most
//   max(took / 8, min(took / 3, 20 us)). A program's clock and the library's own work take up to
//   20 us between two operations. No rank may have been idle for more than 4 times that limit,
//   since the average over many ranks hardly shows one that is very late.
//
// The mean of a window leaves out three of ten values at either end. A rank that was not scheduled
// or a lost packet makes an outlier ten times as long; a token bucket that filled up in a pause
// makes a short one. The mean of the middle four varies less than the median alone. A short window
// can leave out fewer values. It grows while so many operations took over 1.5 times the median, or
// less than the median / 1.5, that one more could change the median.
//
// While operations overlap, none has a usable measurement, and what a class is trying would never
// end. After kSilent of them in a row the Timer returns a window without any lane's time.
//
// Sizes within a class differ by up to a factor of two. The mean size leaves out values in the same
// way. Durations are scaled in proportion to that size if they then agree better; where start-up
// time decides they agree better unscaled.
class Timer {
 public:
  static constexpr int kOperations = 10;  // in a window, as in Nezha §IV-B
  // Most operations for which some ranks' readings are missing. The oldest is dropped beyond it.
  static constexpr size_t kPending = 1024;
  static constexpr int kSilent = 64;

  Timer(int ranks, int lanes);

  // Sets the number of operations in a window of the class, which is at least 1.
  void set_operations(SizeClass size_class, int operations);

  // Adds a reading; readings come in any order. Returns the window that it completes, if any.
  // Returns an error if the reading does not fit these ranks and lanes, or contradicts another
  // rank's.
  absl::StatusOr<std::optional<Window>> add(int rank, const Reading& reading);

  size_t pending() const { return pending_.size(); }
  uint64_t forgotten() const { return forgotten_; }

 private:
  struct Operation {
    Reading shortest;  // each lane's minimum over the readings so far
    // Means over all ranks, of which the readings so far have added their shares.
    LaneTimes means;
    Nanos took = 0;             // the mean of each rank's slowest lane
    Nanos idle = 0;             // the mean of the ranks' idle times
    Nanos most_idle = 0;        // the maximum over the readings so far
    bool is_at_once = true;     // all readings so far follow one of the class, and are usable
    RecycledVector<bool> told;  // indexed by rank: its reading has come
    int missing = 0;            // ranks whose readings have not come
  };
  struct Gathering {
    uint32_t allocation = 0;
    RecycledVector<Reading> operations;
    int silent = 0;  // operations without a usable measurement, since the last one that had it
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
  std::map<SizeClass, int> length_;  // operations in a window; kOperations for other classes
  std::map<SizeClass, Gathering> gathering_;
};

}  // namespace nezha
