// SPDX-License-Identifier: Apache-2.0
// Another rank of a Gloo context, as this rank sees it. All methods are called under Progress's
// lock.
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

// The id of a Gloo context on the wire. Each rank has an endpoint of its own, so that several ranks
// in one process reach each other as ranks of several processes do. So one id serves all contexts.
constexpr UniqueId kGlooJob{0x676c6f6f20676c6f, 0x6f20676c6f6f2067};

// Gloo's algorithms have several transfers of one tag under way on one buffer, and take the first
// that ends for the first that was begun. Over several rails transfers may be complete in any
// order, so this ends them in the order in which they were added.
class InOrder {
 public:
  void add(Transfer& transfer);
  // The transfer is complete, or is taken out of the order. Both remove and return, in order, the
  // transfers that end because of that.
  std::vector<Transfer*> complete(Transfer& transfer);
  std::vector<Transfer*> remove(const Transfer& transfer);

 private:
  std::vector<Transfer*> take_complete(uint64_t tag);

  HashMap<uint64_t, absl::InlinedVector<Transfer*, 2>> queues_;  // indexed by tag
};

class Peer {
 public:
  explicit Peer(int rank) : rank_(rank) {}
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  int rank() const { return rank_; }
  // The channel to the peer is null until the peer's address is known.
  void set_channel(Channel& channel) { channel_ = &channel; }
  Channel* channel() const { return channel_; }
  // Returns an error if nothing can be received from the peer any more, or not yet. Messages that
  // the peer sent before it left can still be received.
  absl::Status can_receive() const;
  // Returns an error if nothing can be sent to the peer any more, or not yet.
  absl::Status can_send() const;

  // These add and remove the transfers that fail when the peer does.
  void add(Transfer& transfer) { open_.push_back(&transfer); }
  void remove(const Transfer& transfer);
  // These return the order of the sends to the peer, and of the receives from it.
  InOrder& sends() { return sends_; }
  InOrder& receives() { return receives_; }
  // The transfer is complete. It ends together with complete ones that waited for it, or waits for
  // earlier ones.
  void complete(InOrder& order, Transfer& transfer);
  // Takes the transfer out of the order. Complete ones that waited for it end.
  void withdraw(InOrder& order, const Transfer& transfer);

  // Fails all transfers, also those that are begun later. The first reason counts.
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
