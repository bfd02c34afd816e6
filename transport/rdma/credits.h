// SPDX-License-Identifier: Apache-2.0
// Counts the receives that both ends of a link have posted for each other's messages, so that no
// message is ever sent that finds none.
#pragma once

#include <cstdint>

namespace nezha::rdma {

// The last receive of the peer is kept for a message that tells it of freed ones, and such a
// message is sent whenever half of all have been freed. So the two ends cannot both wait for each
// other: an end that has nothing left has told the peer of half, or is owed a message about half.
class Credits {
 public:
  // `own`: how many this end has posted. `peers`: how many the peer has posted.
  Credits(uint32_t own, uint32_t peers) : own_(own), peers_(peers) {}

  bool can_send() const { return left() > 1; }
  bool must_tell() const { return freed_ - told_ >= own_ / 2 && left() > 0; }

  void sent() { ++sent_; }
  // A receive of this end is posted again.
  void freed() { ++freed_; }
  // Returns the number to put into a message, which tells the peer of the freed receives.
  uint32_t tell() { return told_ = freed_; }
  // The peer has told how many it has freed. Returns false if no correct peer says so.
  bool heard(uint32_t freed) {
    if (freed - freed_by_peer_ > sent_ - freed_by_peer_) return false;
    freed_by_peer_ = freed;
    return true;
  }

 private:
  uint32_t left() const { return peers_ - (sent_ - freed_by_peer_); }

  const uint32_t own_;
  const uint32_t peers_;
  // These are counted since the link began, modulo 2^32.
  uint32_t sent_ = 0;
  uint32_t freed_by_peer_ = 0;
  uint32_t freed_ = 0;
  uint32_t told_ = 0;
};

}  // namespace nezha::rdma
