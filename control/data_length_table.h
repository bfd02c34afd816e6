// SPDX-License-Identifier: Apache-2.0
// The data length table (Nezha §IV-B): for each size class, how messages are divided, what the
// lanes took, and the changes that led there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "control/allocation.h"
#include "control/policy.h"
#include "control/size_class.h"
#include "control/timer.h"

namespace nezha {

struct TableEntry {
  struct Change {
    uint64_t windows = 0;  // windows that the class had had by then
    Cause cause = Cause::kStart;
    Allocation allocation;
    // When the change was made, to be read by people. It is not saved for later runs.
    absl::Time time = absl::InfinitePast();

    // Compares all but the time.
    friend bool operator==(const Change& a, const Change& b) {
      return std::tie(a.windows, a.cause, a.allocation) ==
             std::tie(b.windows, b.cause, b.allocation);
    }
  };
  static constexpr size_t kHistory = 16;  // the latest changes, which are kept

  ClassState state = ClassState::kSearching;
  Allocation allocation;
  Algorithm algorithm = Algorithm::kAuto;  // kAuto: the default for the size
  uint32_t number = 0;                     // of allocation and algorithm, in this run; not saved
  uint64_t windows = 0;
  // The last window that was not a probe's:
  uint64_t bytes = 0;  // the mean
  Allocation ran_by;
  std::vector<Nanos> times;  // indexed by lane
  uint64_t changes = 0;
  std::deque<Change> history;  // the latest last

  // Counts a window that ran by `allocation`, and keeps its times unless it is a probe's.
  void saw(const Window& window);
  // Keeps the times of a window that ran by `allocation`, such as that of a probe that is adopted.
  void keep(const Window& window);
  // Returns whether `allocation` is a probe's. The class then still has what it ran by before.
  bool is_probed() const;
  // The class goes on by the allocation `to`.
  void change(Allocation to, Cause cause);
  // Adds a change to the history that leaves the allocation as it is.
  void record(Cause cause);
};

struct DataLengthTable {
  std::vector<std::string> lanes;  // their names
  std::map<SizeClass, TableEntry> entries;

  // Returns a line for each class, to be read by people.
  std::string to_string() const;
  // Returns the history of a class, with a line for each change.
  std::string history(SizeClass size_class) const;
};

absl::string_view name_of(ClassState state);
absl::string_view name_of(Cause cause);

}  // namespace nezha
