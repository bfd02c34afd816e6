// SPDX-License-Identifier: Apache-2.0
// The sending half of a channel: makes segments of messages, within the receiver's credit. It keeps
// each segment until it is acknowledged, in the sender's memory or in a copy. It does no I/O.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/buffer_pool.h"
#include "common/hash_map.h"
#include "common/recycled.h"
#include "common/spares.h"
#include "transport/message.h"
#include "transport/scheduler.h"

namespace nezha {

// Where a message may go.
struct Route {
  RailMask rails = kAllRails;  // preferred; others are taken only when none of these is up
  size_t granule = 1;          // bytes; segments are cut at multiples of it
  int segments_per_rail = 1;   // at least; 2 where a next hop forwards while it receives
  bool is_urgent = false;      // it goes before what is queued
  // The message is settled only once the receiver has asked for it, as with MPI_Ssend.
  bool is_synchronous = false;
  // All that is pushed is copied, whatever its length, and so released at once, without telling the
  // sender. The message is settled at once, too.
  bool is_copied = false;
  // The number of this message among those of the sender that take turns; see Scheduler::whole.
  std::optional<uint64_t> turn = std::nullopt;
};

// A message on its way out. The outbox owns it. It is gone after `settled`, `failed` or
// Outbox::abandon.
class OutMessage {
 public:
  uint64_t number() const { return header_.number; }
  // Returns whether it waits until the receiver asks for it, or uses what came before it.
  bool is_blocked() const { return !blocked_.empty(); }

 private:
  friend class Outbox;
  // Returns whether it still has to wait until the receiver asks for it.
  bool is_unasked() const { return route_.is_synchronous && !granted_; }
  // Returns whether all of it has been pushed, and the peer has acknowledged all of it.
  bool complete() const { return pushed_ == header_.info.total && live_.empty() && !is_unasked(); }

  wire::DataHeader header_;
  Route route_;
  Sender* sender_ = nullptr;  // null: settled or abandoned
  uint64_t pushed_ = 0;       // bytes, less what was dropped
  uint64_t unacked_ = 0;      // bytes of live_ that still are the sender's memory
  size_t unwritten_ = 0;      // segments of live_
  bool granted_ = false;
  bool announced_ = false;
  bool has_asked_ = false;    // a segment of it asks for the grant
  bool is_in_doubt_ = false;  // a link has died that may have had the grant
  bool scheduled_ = false;    // at least one segment was
  bool settling_ = false;
  std::vector<OutSegment*> live_;       // scheduled or submitted, not acknowledged
  RecycledDeque<OutSegment*> blocked_;  // those that wait for credit
};

class Outbox {
 public:
  // Unacknowledged bytes that are kept in copies so that an operation need not wait for the
  // acknowledgements of its last segments.
  static constexpr uint64_t kMaxRetained = 256 << 10;
  static constexpr size_t kMaxBlindSegment = kLongestSegment;

  Outbox(Scheduler& scheduler, BufferPool& pool) : scheduler_(scheduler), pool_(pool) {}
  ~Outbox();

  // Begins a message of info.total bytes. Messages of one (context, tag) are received in the
  // order in which they were opened.
  OutMessage* open(const wire::MessageInfo& info, const Route& route, Sender* sender);
  // Tells the receiver of the message now, for a sender that has nothing to push yet. The caller
  // pumps the scheduler.
  void announce(OutMessage& message);
  // Sends [offset, offset + length) of the message from `data`, which stays there until released.
  // It goes by `rail` if that is up. With kAnyRail the message goes whole by its turn, or is cut
  // over all rails. The caller pumps the scheduler. Throws OutOfMemory if there is no memory for a
  // copy that the route wants; then the message is to be abandoned.
  void push(OutMessage& message, uint64_t offset, const std::byte* data, size_t length, Rail rail);
  // All has been pushed: releases the memory as soon as possible, by copying if that is little.
  // Sends a message of no bytes.
  void settle(OutMessage& message);
  // The sender's memory is released now, whatever that costs. The message may never arrive.
  void abandon(OutMessage& message);

  void on_written(OutSegment& segment);
  void on_acked(OutSegment& segment);
  void on_grant(uint64_t number);
  void on_credit(uint64_t credit);
  // Sends the segments of a dead link by other links, and asks again for grants that may have been
  // lost with it. Returns how many of the segments had been written.
  size_t resend(std::deque<OutSegment*>& orphans);
  // All senders fail; nothing is sent any more.
  void fail(const absl::Status& why);

  bool pending() const { return !messages_.empty(); }  // not wholly acknowledged
  // Returns the same for messages of the contexts for which `counts` is true.
  template <typename Counts>
  bool pending_of(Counts counts) const {
    return std::any_of(messages_.begin(), messages_.end(), [&](const auto& entry) {
      return counts(entry.second->header_.info.context);
    });
  }
  bool wanted() const { return open_ > 0; }  // somebody waits for its progress
  uint64_t retained_bytes() const { return retained_; }
  // Returns what the receiver will have consumed in the end: the two are equal once all is
  // acknowledged and used.
  uint64_t charged() const { return charged_; }       // bytes
  size_t blocked() const { return blocked_.size(); }  // messages that wait for credit

 private:
  using Key = std::pair<uint64_t, uint64_t>;  // context, tag

  OutSegment* make_segment(OutMessage& message, uint64_t offset, const std::byte* data,
                           size_t length, Rail rail);
  void schedule(OutSegment& segment, bool at_front = false);
  bool charge(uint64_t length);
  void ask_again();
  void ask_again_if_in_doubt(OutMessage& message);
  void unblock(OutMessage& message);
  void unblock_all();
  void retain(OutSegment& segment, Buffer copy);
  bool try_settle(OutMessage& message);
  void drop(OutSegment* segment);
  void end(OutMessage& message);
  void recycle(OutSegment* segment);
  void finish_if_acked(OutMessage& message);

  Scheduler& scheduler_;
  BufferPool& pool_;
  uint64_t next_number_ = 1;
  uint64_t charged_ = 0;  // bytes
  uint64_t credit_ = wire::kInitialCredit;
  uint64_t retained_ = 0;
  size_t open_ = 0;                                          // messages with a sender
  HashMap<uint64_t, std::unique_ptr<OutMessage>> messages_;  // keyed by number
  HashMap<Key, uint64_t> last_;                              // number
  RecycledDeque<uint64_t> blocked_;                          // numbers
  std::vector<uint64_t> settling_;                           // numbers
  std::vector<std::unique_ptr<OutSegment>> segments_;        // all ever made
  std::vector<OutSegment*> spare_segments_;
  Spares<OutMessage> spare_messages_;
};

}  // namespace nezha
