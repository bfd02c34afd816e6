// Who has not entered an operation that is about to time out.
//
// A rank knows only whom it waits for, who may be waiting for another itself. So it asks all ranks,
// by flooding: each passes on to all it is connected to what it hears for the first time, and a
// rank that has not entered the operation says so in the same way.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "transport/wire.h"

namespace nezha {

class RollCall {
 public:
  // This rank enters an operation: which of its tag that is, from 1.
  uint64_t enter(uint32_t tag) { return ++entered_[tag]; }
  bool has_entered(const wire::RollCall& call) const;

  // Whether it is news, which is to be passed on.
  bool hear(const wire::RollCall& call);

  // Those heard of, for an error: "ranks 2, 5 have not entered it"; "" if there are none.
  std::string absent(uint32_t tag, uint64_t ordinal) const;

 private:
  struct Call {
    uint32_t tag;
    uint64_t ordinal;
    std::set<uint32_t> absent;
  };
  static constexpr size_t kMaxCalls = 64;   // the latest
  static constexpr size_t kMaxAbsent = 16;  // that are told of

  absl::flat_hash_map<uint32_t, uint64_t> entered_;  // operations, by tag
  std::deque<Call> calls_;
};

}  // namespace nezha
