// SPDX-License-Identifier: Apache-2.0
// Who has entered an operation, and who calls another one by its tag.
//
// A rank knows only whom it waits for, who may be waiting for another itself. So ranks tell all, by
// flooding: each passes on to all it is connected to what it hears for the first time. An operation
// that takes long tells what it is, and whoever calls another one by the same tag and ordinal
// knows. One that is about to time out asks who is absent, and a rank that has not entered it says
// so in the same way; of one that says nothing any more, a rank that waits for it does.
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
  // This rank enters an operation: which of its tag that is, from 1.
  uint64_t enter(uint32_t tag, uint64_t signature);
  bool has_entered(uint32_t tag, uint64_t ordinal) const;

  // Whether this rank has said that it has not entered it.
  bool has_said_absent(uint32_t rank, uint32_t tag, uint64_t ordinal) const;

  // Whether it is news, which is to be passed on.
  bool hear(const wire::RollCall& call);

  // A rank that calls this operation otherwise than this rank does, as it was heard. Nothing if
  // this rank has not entered it, or so many after it that it has forgotten what it was.
  std::optional<wire::RollCall> other(uint32_t tag, uint64_t ordinal) const;
  // This rank's signature of the operation; 0 if other() has nothing to compare with.
  uint64_t signature(uint32_t tag, uint64_t ordinal) const;

  // Those heard of, for an error: "ranks 2, 5 have not entered it; rank 3 has not answered"; "" if
  // there are none.
  std::string absent(uint32_t tag, uint64_t ordinal) const;
  // The ranks themselves: those that have not answered, and those that have not entered it.
  std::set<uint32_t> silent(uint32_t tag, uint64_t ordinal) const;
  std::set<uint32_t> absentees(uint32_t tag, uint64_t ordinal) const;

 private:
  struct Call {
    uint32_t tag;
    uint64_t ordinal;
    bool asked;  // who is absent
    std::set<uint32_t> absent;
    std::set<uint32_t> silent;
    std::set<uint32_t> late;              // they were one of these, and have entered since
    std::vector<wire::RollCall> callers;  // the first of each signature
  };
  struct Entry {
    uint32_t tag = 0;
    uint64_t ordinal = 0;  // 0: none
    uint64_t signature = 0;
  };
  // What is forgotten while it is still passed on would be news again, for ever: so these are many
  // more than ranks tell of at a time.
  static constexpr size_t kMaxCalls = 256;   // the latest
  static constexpr size_t kMaxAbsent = 16;   // that are told of
  static constexpr size_t kMaxCallers = 16;  // signatures
  static constexpr size_t kEntries = 256;

  static size_t slot(uint32_t tag, uint64_t ordinal) {
    return (uint64_t{tag} * 0x9e3779b97f4a7c15U + ordinal) % kEntries;
  }
  // Its index; calls_.size() if it is not there.
  size_t find(uint32_t tag, uint64_t ordinal) const;

  TagCounts entered_;                    // operations
  std::array<Entry, kEntries> entries_;  // the latest of each slot
  std::deque<Call> calls_;
};

}  // namespace nezha
