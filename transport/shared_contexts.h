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

// It is bookkeeping alone: ContextNews tells the peer what is due.
class SharedContexts {
 public:
  // What a peer may make this end remember, and how many of those closed here are repeated to it.
  static constexpr size_t kMost = 256;
  static constexpr size_t kMostClosed = 64;

  // This process is in the context. Whether that is news.
  bool enter(const UniqueId& id);
  // The peer is in it, as it says itself. One that this process is no member of is remembered if
  // there is room.
  void peer_entered(const UniqueId& id, bool is_member);
  // The peer has closed it, and this process may come to speak in it only later.
  void peer_left(const UniqueId& id);
  // This process has closed it.
  void close(const UniqueId& id);
  // Forgets those closed here for which nothing is pending any more. Returns those of them that the
  // peer has not closed itself: it is to be told.
  std::vector<UniqueId> end_closed(absl::FunctionRef<bool(uint64_t context)> is_pending);

  // Those that the peer has yet to hear that this process is in, and that it is a member of. They
  // count as told then.
  std::vector<UniqueId> take_untold(absl::FunctionRef<bool(const UniqueId& id)> is_member);
  void told(const UniqueId& id);
  // What was told may have been lost.
  void tell_again();

  bool contains(const UniqueId& id) const { return find(id) != nullptr; }
  bool has_left(uint64_t context) const;  // the peer
  // Those that neither has closed.
  std::vector<UniqueId> open() const;
  bool has_open(absl::FunctionRef<bool(const UniqueId& id)> counts) const;
  // A context that the peer has not closed, another one at each turn; null: there is none.
  const UniqueId* next(uint32_t turn) const;
  // Those that were closed here lately, and ended.
  const std::deque<UniqueId>& closed() const { return closed_; }
  bool is_closed(const UniqueId& id) const;

 private:
  struct Shared {
    UniqueId id;
    bool is_untold = true;    // the peer has yet to hear that this process is in it
    bool is_closing = false;  // here, and something of it is pending
    bool has_left = false;    // the peer
    bool is_open() const { return !is_closing && !has_left; }
  };
  const Shared* find(const UniqueId& id) const;

  std::vector<Shared> shared_;
  std::deque<UniqueId> closed_;
};

}  // namespace nezha
