// SPDX-License-Identifier: Apache-2.0
// The receiving half of a channel: matches messages with receivers, drops duplicates, and keeps a
// bounded amount of data that nobody has asked for yet. It does no I/O.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "common/buffer_pool.h"
#include "common/clock.h"
#include "common/hash_map.h"
#include "common/interval_set.h"
#include "common/recycled.h"
#include "common/spares.h"
#include "transport/message.h"
#include "transport/wire.h"

namespace nezha {

// What the inbox needs of its channel.
class InboxOwner {
 public:
  // Sends the grant by `rail` if that has a link, or else by any link.
  virtual void send_grant(uint64_t number, Rail rail) = 0;
  // See Link::drop_incoming.
  virtual bool drop_incoming(Rail rail, size_t nth) = 0;

 protected:
  ~InboxOwner() = default;
};

class Inbox {
 public:
  // A message somebody wants. The ticket is the inbox's; it is gone after cancel, after the last
  // byte landed, or after `failed`.
  class Ticket;

  Inbox(InboxOwner& owner, BufferPool& pool) : owner_(owner), pool_(pool) {}
  // Asks for the next message of (context, tag). It must be as `info` says, or else the receiver is
  // told. Segments that are there already land before this returns. `asks`: the receiver itself
  // decides whether it takes the message; see Receiver::accepts.
  Ticket* post(const wire::MessageInfo& info, Receiver* receiver, bool asks = false);
  // Returns since when the message that a post would get has been there; nullopt if there is none.
  std::optional<Nanos> waiting_since(uint64_t context, uint64_t tag) const;
  // Withdraws the ticket: nothing is placed or landed for it afterwards.
  void cancel(Ticket* ticket);
  // Says whether anybody waits for the message. At first somebody does.
  void set_awaited(Ticket* ticket, bool is_awaited);

  // A link of `rail` reads a segment: arrive() gets the header, and landed() the end unless the
  // header was an error. Several segments may be under way. They end in the order of their headers.
  absl::StatusOr<std::byte*> arrive(Rail rail, const wire::FrameHeader& frame,
                                    const wire::DataHeader& data);
  void landed(Rail rail, bool is_digested = false);
  // Returns the digest of the segment whose header came last.
  Digest digest_of(Rail rail) const;
  // The segment that landed() ends next. There must be one.
  struct Landing {
    uint32_t length;
    bool is_ack_due;
  };
  Landing next_to_land(Rail rail) const;
  // The link is fenced. The segments that it was reading will come again by another link.
  void link_gone(Rail rail);
  // Sends the grants of incomplete messages again. They may have been lost with a link that died,
  // or because there was no link.
  void grant_again();

  // Nobody will ask for this context's messages any more: they are dropped as they come. The last
  // kMaxClosed contexts are remembered, since late messages of a peer belong to a context that has
  // just ended.
  void close_context(uint64_t context);
  // All receivers fail.
  void fail(const absl::Status& why);
  // The receivers that wait for this context's messages fail.
  void fail_context(uint64_t context, const absl::Status& why);

  // Returns charged bytes that the peer may have sent since the channel began.
  uint64_t credit() const { return consumed_ + kCredit; }
  uint64_t consumed() const { return consumed_; }  // charged bytes
  bool wanted() const { return awaited_ > 0; }

  // Unasked-for payload that a peer may have here, bytes.
  static constexpr uint64_t kCredit = wire::kInitialCredit;
  static constexpr size_t kMaxClosed = 64;

 private:
  struct Held {  // a segment that came before it was asked for
    uint64_t offset;
    uint32_t length;
    bool charged;
    Rail rail;
    Buffer bytes;
  };
  struct Placed {  // memory given for a segment whose link died before it was complete
    uint64_t offset;
    uint32_t length;
    std::byte* memory;
  };
  struct Message {
    wire::MessageInfo info;
    uint64_t number = 0;
    uint32_t previous = 0;
    uint64_t received = 0;  // bytes that landed and are not held
    uint64_t coming = 0;    // bytes that come in all; less than its total if it was abandoned
    Nanos came = 0;         // when its first segment came
    bool wants_grant = false;
    bool granted = false;
    bool announced_empty = false;  // a message of no bytes has come
    bool abandoned = false;
    bool discard = false;
    Ticket* ticket = nullptr;
    IntervalSet got;
    RecycledVector<Held> held;
    std::vector<Placed> placed;
  };
  struct Incoming {  // a segment that a link is reading
    Rail rail = kAnyRail;
    Message* message = nullptr;  // null: nowhere
    uint64_t offset = 0;
    uint32_t length = 0;
    uint32_t attempt = 0;
    bool charged = false;
    bool abandons = false;
    bool is_ack_due = false;
    std::byte* memory = nullptr;  // the receiver's
    Buffer held;                  // or the inbox's
  };
  using Key = std::pair<uint64_t, uint64_t>;  // context, tag
  struct Queue {
    absl::InlinedVector<Message*, 4> arrived;  // those not matched, by number
    absl::InlinedVector<Ticket*, 4> posted;    // those not matched, in order
  };

  absl::StatusOr<Message*> find_or_add(const wire::DataHeader& data);
  absl::Status check(const Message& message, const wire::FrameHeader& frame,
                     const wire::DataHeader& data) const;
  absl::StatusOr<std::byte*> begin(Incoming& incoming, const wire::FrameHeader& frame,
                                   const wire::DataHeader& data);
  absl::StatusOr<bool> replaces_others(const Message& message, const wire::FrameHeader& frame,
                                       const wire::DataHeader& data);
  absl::StatusOr<std::byte*> place(Message& message, Incoming& incoming);
  std::byte* hold(Incoming& incoming);
  bool drop(const Incoming& incoming);
  void forget(Incoming& incoming);
  void match(const Key& key);
  bool is_next(const Message& message) const;  // no message sent before it is still to come
  void bind(Message& message, Ticket* ticket);
  void deliver_held(Message& message);
  void grant_if_wanted(Message& message);
  bool finish_if_complete(uint64_t number);
  void discard(Message& message);
  void consume(bool charged, uint64_t length) { consumed_ += charged ? wire::charge(length) : 0; }
  void fail(Ticket* ticket, const absl::Status& why);
  void retire(Ticket* ticket);
  void retire(Message& message);
  bool known(uint64_t number) const {
    return completed_.contains(number) || messages_.contains(number);
  }

  InboxOwner& owner_;
  BufferPool& pool_;
  HashMap<uint64_t, std::unique_ptr<Message>> messages_;  // keyed by number
  IntervalSet completed_;                                 // numbers
  HashMap<Key, Queue> queues_;
  HashSet<uint64_t> closed_contexts_;
  std::deque<uint64_t> closed_order_;  // closed_contexts_, oldest first
  // The segments of each rail are in the order of their headers. If more are under way at once than
  // fit in here, memory is allocated for them, once.
  absl::InlinedVector<Incoming, 2> incoming_;
  uint64_t consumed_ = 0;    // charged bytes that were used or dropped
  uint64_t held_bytes_ = 0;  // charged bytes that are held
  Spares<Message> spare_messages_;
  std::vector<std::unique_ptr<Ticket>> tickets_;
  size_t awaited_ = 0;  // tickets that somebody waits for
  Spares<Ticket> spare_tickets_;
};

class Inbox::Ticket {
 private:
  friend class Inbox;
  wire::MessageInfo info_;
  Receiver* receiver_ = nullptr;
  Message* message_ = nullptr;  // null until it is matched
  size_t index_ = 0;            // its place in tickets_
  bool is_awaited_ = false;
  bool asks_ = false;
};

}  // namespace nezha
