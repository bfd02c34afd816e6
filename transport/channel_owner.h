// SPDX-License-Identifier: Apache-2.0
// What a channel needs of its process.
#pragma once

#include <deque>

#include "absl/status/status.h"
#include "common/buffer_pool.h"
#include "common/unique_id.h"
#include "transport/device.h"
#include "transport/progress.h"
#include "transport/wire.h"

namespace nezha {

// Whether a process is in a context.
enum class Membership {
  kUnknown,  // it has not entered the context, as far as it remembers
  kMember,
  kLeft,  // it has closed the context
};

class ChannelOwner {
 public:
  virtual Progress& progress() = 0;
  virtual BufferPool& pool() = 0;
  virtual const UniqueId& process() const = 0;
  virtual Device* device(Rail rail) = 0;  // null: there is none of that number
  virtual RailMask rails() const = 0;     // the rails that have a device
  virtual Membership membership(const UniqueId& job) const = 0;
  virtual void on_abort(const wire::Abort& abort) = 0;
  virtual void on_roll_call(const wire::RollCall& call) = 0;
  // The peer, which is in that context, has died.
  virtual void on_peer_gone(const UniqueId& job, const absl::Status& why) = 0;
  // A link on that rail may be dead, and so may the links to other peers.
  virtual void on_suspicion(Rail rail) = 0;
  // Returns the contexts of this process that broke lately. Whoever connects is told of them.
  virtual const std::deque<wire::Abort>& aborts() const = 0;

 protected:
  ~ChannelOwner() = default;
};

}  // namespace nezha
