// SPDX-License-Identifier: Apache-2.0
// A host's part of one session: which block it may send next, and which one to send again.
//
// Block s may be sent once the result of s-W is there, whatever the state of other blocks: a block
// that waits for a lost frame delays the blocks W, 2W, ... after it and no others. A block without
// an answer is sent again after a time that follows the round trips (V. Paxson et al.: RFC 6298:
// smoothed round trip plus four times its variation), and the next time after twice that time. Only
// blocks that were sent once measure a round trip. Until one does, new blocks begin with the
// doubled time after which the last block got its result (P. Karn's algorithm; sections 3 and 5.5
// to 5.7); otherwise a round trip that grew beyond the timeout would never be measured. kPending
// counts as an answer, but neither as a round trip nor as a loss: the block waits for another rank,
// and asking often would not help. Blocks that the switch reports missing are sent at once, and
// results that a gap in their numbers shows to be lost are asked for at once (sent_log.h).
//
// The number of blocks in flight, at most W, follows the path (flight_limit.h), but the lowest
// block without a result is never held back. Otherwise hosts that have all reached their limits,
// with different blocks in flight, could wait for each other's contributions for ever. As it is,
// every host sends the lowest block that the switch waits for once it has the results of the blocks
// before.
//
// All hosts send in one order, unless they are told to stagger. Flare's staggered sending, in which
// each host begins at a place of its own, gains nothing where one core does all of a block
// (docs/performance.md).
//
// The other end is slot_table.h, which explains why nothing is lost or counted twice.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "flare_offload/core/flight_limit.h"
#include "flare_offload/core/sent_log.h"
#include "flare_offload/wire/frame.h"

namespace nezha::flare {

struct RetryTiming {
  Nanos first = 20 * kMillisecond;  // until a round trip is known
  // Longer than a window takes to pass the slowest queue, and longer than another process may keep
  // a host or a software switch from its core. With less, most resends are unnecessary.
  Nanos least = 20 * kMillisecond;
  Nanos most = 100 * kMillisecond;
};

// The order in which blocks are sent for the first time: within groups of `blocks` blocks, from the
// one at `first` on and around. Hosts may have different orders, so that they do not all send the
// same block at once.
struct Stagger {
  // With larger groups hosts could wait for blocks that none of them may send.
  static constexpr auto kMost = static_cast<uint32_t>(FlightLimit::kFirst);

  uint32_t blocks = 1;  // a power of two; 1: they are sent in their order
  uint32_t first = 0;   // less than `blocks`

  // The block's place in the order; wraps as blocks' numbers do.
  uint32_t place(uint32_t seq) const {
    const uint32_t in_group = blocks - 1;
    return (seq & ~in_group) | ((seq - first) & in_group);
  }
};

// A pure state machine, which is told the time. Not thread-safe.
class Window {
 public:
  static constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

  // `size`: W, as the switch has it.
  Window(uint32_t size, uint32_t first_seq, const RetryTiming& timing, const Stagger& stagger = {});

  // There are fewer blocks than this from the first unfinished one to the last.
  static constexpr uint32_t kMaxUnfinished = uint32_t{1} << 31;

  // Adds `count` blocks to send. Returns the seq of the first one.
  uint32_t extend(uint32_t count);

  // The seq of a block to send now, for the first time; nothing if none may be sent.
  std::optional<uint32_t> take_new(Nanos now);
  // The seq of a block to send again now; nothing if none is due.
  std::optional<uint32_t> take_overdue(Nanos now);
  // When take_overdue() will have one, or earlier; kNever if nothing is in flight.
  Nanos next_due() const { return overdue_.empty() ? next_due_ : 0; }

  // The number for the contribution that is about to be sent, of a block that was just taken.
  uint16_t number_of(uint32_t seq);
  // The number for a frame of any other type.
  uint16_t next_number() const { return sent_.next(); }
  // A frame has come from the switch. Returns the numbers to ask for by kLost; mostly none.
  NumberRange lost_before(const FrameHeader& header);
  // kLost has come: those of its blocks that are in flight are overdue.
  void on_lost(const NumberRange& numbers, Nanos now);

  // A result has come: true if it is the block's first one and the block is in flight.
  bool on_result(uint32_t seq, Nanos now);
  void on_pending(uint32_t seq, Nanos now);

  // Blocks that are in flight, or are still to be sent.
  uint32_t unfinished() const { return unfinished_; }
  // Since when the switch has been silent while something was in flight; kNever if nothing is. The
  // caller decides when the switch counts as dead.
  Nanos silent_since() const { return in_flight_ == 0 ? kNever : heard_; }
  uint64_t resent() const { return resent_; }
  // How many blocks may be in flight now.
  uint32_t limit() const { return limit_.blocks(); }

 private:
  struct Place {             // shared by the blocks that are equal modulo W, in turn
    uint32_t seq = 0;        // in flight, or the next one
    int attempts = 0;        // how often it was sent; 0: it is not in flight
    bool waited = false;     // for another rank
    bool is_timed = false;   // all hosts had begun when it was sent
    bool is_lost = false;    // the switch says so
    bool is_listed = false;  // in overdue_
    uint16_t number = 0;     // of its last frame
    Nanos sent = 0;          // at first
    Nanos interval = 0;      // between the last time that it was sent and the next
    Nanos due = kNever;
  };

  Place& place_of(uint32_t seq) { return places_[seq % places_.size()]; }
  // The place of a block in flight; null if it is not.
  Place* in_flight(uint32_t seq);
  // The block that is next in a place may be sent, if it exists.
  void make_ready(const Place& place);
  // Remove a block from ready_: the next one, or `seq`, which must be there.
  uint32_t take_next();
  uint32_t take_ready(uint32_t seq);
  // Whether block `a` comes after block `b` in the order of the stagger.
  auto comes_later() const {
    return [stagger = stagger_](uint32_t a, uint32_t b) {
      return stagger.place(a) - stagger.place(b) - 1 < kMaxUnfinished;
    };
  }
  void list_overdue(Nanos now);
  void add_overdue(Place& place);
  void send(Place& place, Nanos now);
  // The interval of a block that is sent for the first time.
  Nanos timeout() const;
  // Learns from the result of a block that waited for nobody.
  void learn(const Place& place, Nanos now);

  const RetryTiming timing_;
  const Stagger stagger_;
  std::vector<Place> places_;
  std::vector<uint32_t> ready_;    // blocks to send for the first time: a heap, the next on top
  std::vector<uint32_t> overdue_;  // some that are due, or were when they were listed
  SentLog sent_;
  GapFinder results_;
  FlightLimit limit_;
  uint32_t lowest_;  // block without a result
  uint32_t end_;     // the seq after the last block's
  uint32_t unfinished_ = 0;
  uint32_t in_flight_ = 0;
  bool is_flowing_ = false;  // a result has come since all was finished
  Nanos next_due_ = kNever;
  Nanos heard_ = 0;
  Nanos smoothed_ = 0;  // 0: not known yet
  Nanos variation_ = 0;
  Nanos backed_off_ = 0;  // the least timeout until the next round trip is known
  uint64_t resent_ = 0;
};

}  // namespace nezha::flare
