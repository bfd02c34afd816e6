// SPDX-License-Identifier: Apache-2.0
// Which of a fabric's multicast groups are taken. A session's switch sends the hosts that are its
// children each result once, to a group of their own: the hosts of another session would get it,
// too, and drop it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "flare_offload/manager/fabric.h"

namespace nezha::flare {

class Groups {
 public:
  // Nothing: there are none.
  explicit Groups(const std::optional<GroupRange>& range) : range_(range) {}

  // The next free one, in turn, so that one that was just released rests; nothing: none is free.
  std::optional<Address> take();
  // That one; false: it is taken, or none of these.
  bool take(const Address& group);
  void release(const Address& group);

 private:
  std::optional<uint32_t> index_of(const Address& group) const;

  const std::optional<GroupRange> range_;
  std::set<uint32_t> taken_;  // by index
  uint32_t next_ = 0;
};

// The address that is so many further, of the same port; nothing: its last 32 bits would overflow.
std::optional<Address> plus(const Address& address, uint32_t count);

}  // namespace nezha::flare
