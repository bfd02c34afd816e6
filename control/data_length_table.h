// SPDX-License-Identifier: Apache-2.0
// The data length table (Nezha §IV-B): how the messages of each size class are divided, what its
// lanes took, and how it came to that.
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
    uint64_t windows = 0;  // how many the class had had
    Cause cause = Cause::kStart;
    Allocation allocation;
    // When it was made, for people. An earlier run's time is not saved.
    absl::Time time = absl::InfinitePast();

    // Compares all but the time.
    friend bool operator==(const Change& a, const Change& b) {
      return std::tie(a.windows, a.cause, a.allocation) ==
             std::tie(b.windows, b.cause, b.allocation);
    }
  };
  static constexpr size_t kHistory = 16;  // changes that are kept, the latest

  ClassState state = ClassState::kSearching;
  Allocation allocation;
  Algorithm algorithm = Algorithm::kAuto;  // kAuto: the one that messages of their size have
  uint32_t number = 0;                     // of the two. Of this run: not saved
  size_t way = 0;                          // which is its own (LoadBalancer::Way): not saved
  uint64_t windows = 0;
  // The last window that was none of a probe:
  uint64_t bytes = 0;  // the mean
  Allocation ran_by;
  std::vector<Nanos> times;  // by lane
  uint64_t changes = 0;
  std::deque<Change> history;  // the latest last

  // A window of the class by `allocation`.
  void saw(const Window& window);
  // It is none of a probe, or of one that is adopted.
  void keep(const Window& window);
  // Whether `allocation` is a probe's: what ran before is what the class has.
  bool is_probed() const;
  // The class goes on by that allocation.
  void change(Allocation to, Cause cause);
  // It goes on by the one it has, for another reason.
  void record(Cause cause);
};

struct DataLengthTable {
  std::vector<std::string> lanes;  // their names
  std::map<SizeClass, TableEntry> entries;

  // A line for each class, to be read by people.
  std::string to_string() const;
  // And the history of one: a line for each change.
  std::string history(SizeClass size_class) const;
};

absl::string_view name_of(ClassState state);
absl::string_view name_of(Cause cause);

}  // namespace nezha
