// SPDX-License-Identifier: Apache-2.0
// Another rank of a Gloo context, as this one sees it. All calls are made under Progress's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "common/hash_map.h"
#include "common/unique_id.h"
#include "transport/channel.h"

namespace nezha::interop {

class Transfer;

// What the wire calls a Gloo context. Each has an endpoint of its own, so that several ranks in one
// process reach each other as those of several processes do: so one name does for all.
constexpr UniqueId kGlooJob{0x676c6f6f20676c6f, 0x6f20676c6f6f2067};

// Gloo's algorithms have several transfers of one tag under way on one buffer, and take the first
// that ends for the first that was begun. Over several rails they may be complete in any order: so
// they end in the order in which they were added.
class InOrder {
 public:
  void add(Transfer& transfer);
  // Both return those that end now, in order, and remove them: since this one is complete, or since
  // it is no more in their way.
  std::vector<Transfer*> complete(Transfer& transfer);
  std::vector<Transfer*> remove(const Transfer& transfer);

 private:
  std::vector<Transfer*> take_complete(uint64_t tag);

  HashMap<uint64_t, absl::InlinedVector<Transfer*, 2>> queues_;  // by tag
};

class Peer {
 public:
  explicit Peer(int rank) : rank_(rank) {}
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  int rank() const { return rank_; }
  // The channel to it, once it is known where it is; null until then.
  void set_channel(Channel& channel) { channel_ = &channel; }
  Channel* channel() const { return channel_; }
  // An error if nothing can be received from it any more, or not yet. What it has sent before it
  // left may still be there.
  absl::Status can_receive() const;
  // Likewise of sending.
  absl::Status can_send() const;

  // The transfers that fail when the peer does.
  void add(Transfer& transfer) { open_.push_back(&transfer); }
  void remove(const Transfer& transfer);
  // All that was sent to it or received from it, by tags.
  InOrder& sends() { return sends_; }
  InOrder& receives() { return receives_; }
  // The transfer is complete. It ends, with those that waited for it, or waits for others.
  void complete(InOrder& order, Transfer& transfer);
  // It is taken out of the order, and those that waited for it end.
  void withdraw(InOrder& order, const Transfer& transfer);

  // All transfers fail, and all that are begun later. The first reason counts.
  void fail(const absl::Status& why);

 private:
  void end(const std::vector<Transfer*>& transfers);

  const int rank_;
  Channel* channel_ = nullptr;
  absl::Status failure_;
  std::vector<Transfer*> open_;
  InOrder sends_, receives_;
};

}  // namespace nezha::interop
