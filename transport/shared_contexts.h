// SPDX-License-Identifier: Apache-2.0
// The contexts that two processes are both in, or were just in, as far as either has said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/unique_id.h"

namespace nezha {

// This is bookkeeping alone: ContextNews tells the peer what is due.
class SharedContexts {
 public:
  // The most contexts that a peer may make this end remember, and the most closed ones that are
  // repeated to it.
  static constexpr size_t kMost = 256;
  static constexpr size_t kMostClosed = 64;

  // This process is in the context. Returns whether that is news.
  bool enter(const UniqueId& id);
  // The peer says that it is in the context. A context of which this process is no member is
  // remembered only if there is room.
  void peer_entered(const UniqueId& id, bool is_member);
  // The peer has closed the context. This process may enter it only later.
  void peer_left(const UniqueId& id);
  // This process has closed the context.
  void close(const UniqueId& id);
  // Forgets the contexts closed here for which nothing is pending any more. Returns those that the
  // peer has not closed itself, of which it must be told.
  std::vector<UniqueId> end_closed(absl::FunctionRef<bool(uint64_t context)> is_pending);

  // Returns the open contexts that this process is a member of and that the peer has yet to hear
  // of. They count as told from then on.
  std::vector<UniqueId> take_untold(absl::FunctionRef<bool(const UniqueId& id)> is_member);
  void told(const UniqueId& id);
  // What the peer was told may have been lost.
  void tell_again();

  bool contains(const UniqueId& id) const { return find(id) != nullptr; }
  bool has_left(uint64_t context) const;  // whether the peer has
  // Returns the contexts that neither has closed.
  std::vector<UniqueId> open() const;
  bool has_open(absl::FunctionRef<bool(const UniqueId& id)> counts) const;
  // Returns a context that the peer has not closed, another one at each turn; null if there is
  // none.
  const UniqueId* next(uint32_t turn) const;
  // Returns the contexts that were closed here lately, and have ended.
  const std::deque<UniqueId>& closed() const { return closed_; }
  bool is_closed(const UniqueId& id) const;

 private:
  struct Shared {
    UniqueId id;
    bool is_untold = true;    // the peer has yet to hear that this process is in it
    bool is_closing = false;  // closed here, and something of it is pending
    bool has_left = false;    // the peer has closed it
    bool is_open() const { return !is_closing && !has_left; }
  };
  const Shared* find(const UniqueId& id) const;

  std::vector<Shared> shared_;
  std::deque<UniqueId> closed_;
};

}  // namespace nezha
