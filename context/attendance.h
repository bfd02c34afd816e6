// SPDX-License-Identifier: Apache-2.0
// Who has entered an operation, and which ranks call another operation by the same tag.
//
// A rank knows only the ranks that it waits for itself, and those may in turn wait for others. So
// ranks tell all others by flooding: each rank passes on, to all ranks it is connected to, what it
// hears for the first time.
//
// - A rank whose operation takes long tells the operation's signature. A rank that calls another
//   operation by the same tag and ordinal notices the difference.
// - A rank whose operation is about to time out asks who is absent. A rank that has not entered the
//   operation says so.
// - If a rank no longer answers, a rank that waits for it says so in its place.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "context/tag_counts.h"
#include "transport/wire.h"

namespace nezha {

class Attendance {
 public:
  // This rank enters an operation. Returns the operation's ordinal in its tag, from 1.
  uint64_t enter(uint32_t tag, uint64_t signature);
  bool has_entered(uint32_t tag, uint64_t ordinal) const;

  // Returns whether `rank` is known to have said that it has not entered the operation.
  bool has_said_absent(uint32_t rank, uint32_t tag, uint64_t ordinal) const;

  // Notes a call. Returns whether it is news, which must be passed on.
  bool hear(const wire::RollCall& call);

  // Returns a rank's call of another operation by that tag and ordinal. Returns nothing if none was
  // heard, if this rank has not entered its operation, or has entered so many since that it has
  // forgotten it.
  std::optional<wire::RollCall> other(uint32_t tag, uint64_t ordinal) const;
  // Returns this rank's signature of the operation; 0 if this rank has not entered it or has
  // forgotten it.
  uint64_t signature(uint32_t tag, uint64_t ordinal) const;

  // Returns the absent and silent ranks, for an error: "ranks 2, 5 have not entered it; rank 3 has
  // not answered"; "" if there are none.
  std::string absent(uint32_t tag, uint64_t ordinal) const;
  // Returns the ranks that have not answered, and those that have not entered the operation.
  std::set<uint32_t> silent(uint32_t tag, uint64_t ordinal) const;
  std::set<uint32_t> absentees(uint32_t tag, uint64_t ordinal) const;

 private:
  struct Call {
    uint32_t tag;
    uint64_t ordinal;
    bool asked;  // a rank has asked who is absent
    std::set<uint32_t> absent;
    std::set<uint32_t> silent;
    std::set<uint32_t> late;              // were absent or silent, and have entered since
    std::vector<wire::RollCall> callers;  // the first of each signature
  };
  struct Entry {
    uint32_t tag = 0;
    uint64_t ordinal = 0;  // 0: none
    uint64_t signature = 0;
  };
  // A call that is forgotten while ranks still pass it on would be news again, for ever. So these
  // limits are far above what ranks tell of at a time.
  static constexpr size_t kMaxCalls = 256;   // only the latest are kept
  static constexpr size_t kMaxAbsent = 16;   // ranks in each set of a call
  static constexpr size_t kMaxCallers = 16;  // callers of a call, each with another signature
  static constexpr size_t kEntries = 256;

  static size_t slot(uint32_t tag, uint64_t ordinal) {
    return (uint64_t{tag} * 0x9e3779b97f4a7c15U + ordinal) % kEntries;
  }
  // Returns the call's index in calls_; calls_.size() if the call is not there.
  size_t find(uint32_t tag, uint64_t ordinal) const;

  TagCounts entered_;                    // operations that this rank has entered
  std::array<Entry, kEntries> entries_;  // the latest of each slot
  std::deque<Call> calls_;
};

}  // namespace nezha
