// SPDX-License-Identifier: Apache-2.0
// Keeps track of which of a fabric's multicast groups are taken. A session's switch sends each
// result once to all hosts that are its children, by a group of their own: the hosts of another
// session would receive the results, too, and drop them. The class has neither I/O nor a clock.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "flare_offload/manager/fabric.h"

namespace nezha::flare {

class Groups {
 public:
  // Without a range there are no groups.
  explicit Groups(const std::optional<GroupRange>& range) : range_(range) {}

  // Takes the next free group, in turn, so that a group just released rests. Returns nothing if
  // none is free.
  std::optional<Address> take();
  // Takes that group. Returns false if it is taken already, or is none of these.
  bool take(const Address& group);
  void release(const Address& group);

 private:
  std::optional<uint32_t> index_of(const Address& group) const;

  const std::optional<GroupRange> range_;
  std::set<uint32_t> taken_;  // the groups' indices
  uint32_t next_ = 0;
};

// Returns the address `count` further on, of the same port, or nothing if its last 32 bits would
// overflow.
std::optional<Address> plus(const Address& address, uint32_t count);

}  // namespace nezha::flare
