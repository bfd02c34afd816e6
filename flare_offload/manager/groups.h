// SPDX-License-Identifier: Apache-2.0
// Which of a fabric's multicast groups are taken. A session's switch sends each result once to all
// hosts that are its children, by a group of their own: the hosts of another session would receive
// the results, too, and drop them. Pure.
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

  // Takes the next free group, in turn, so that a group just released rests; nothing if none is
  // free.
  std::optional<Address> take();
  // Takes that group. False: it is taken already, or is none of these.
  bool take(const Address& group);
  void release(const Address& group);

 private:
  std::optional<uint32_t> index_of(const Address& group) const;

  const std::optional<GroupRange> range_;
  std::set<uint32_t> taken_;  // by index
  uint32_t next_ = 0;
};

// The address `count` further on, of the same port; nothing if its last 32 bits would overflow.
std::optional<Address> plus(const Address& address, uint32_t count);

}  // namespace nezha::flare
