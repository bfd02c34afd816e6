// SPDX-License-Identifier: Apache-2.0
// A host's part of one session: which block it may send next, and which one again.
//
// Block s goes out when the result of s-W is there, each block by itself: a block that waits for a
// lost frame holds up those W, 2W, ... after it and no others. A block without an answer is sent
// again after a time that follows the round trips (V. Paxson et al.: RFC 6298: smoothed round trip
// plus four times its variation), and after twice that time the next time. Only blocks that were
// sent once tell a round trip; until one does, the next blocks begin with the doubled time with
// which the last one got its result (P. Karn's algorithm; sections 3 and 5.5 to 5.7), or a round
// trip that grew beyond the time would never be learned. kPending counts as an answer, but neither
// as a round trip nor as a loss: the block waits for another rank, and asking often would not help.
// What the switch says that it lacks, and what a gap in the numbers of its results shows to be
// lost, is sent and asked for at once (sent_log.h).
//
// How many of the W are in flight follows the path (flight_limit.h), but the lowest block without
// a result is never held back. Else hosts that each have as many in flight as they may, and not the
// same ones, could all wait for each other's contributions. So the lowest block that the switch
// waits for is sent by all, once they have the results of those before it, and all goes on.
//
// All hosts send in one order, unless they are told to stagger. That, Flare's staggered sending,
// gains nothing where one core does all of a block: from a place of each host's own in groups of 32
// or 64 blocks 8 and 64 MiB, 4 and 8 hosts, took the same time (0.98 to 1.03 of it), and hosts up
// to 1.14 of the CPU time.
//
// The other end is slot_table.h, which says why this loses and repeats nothing.
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
  // Above what a window takes to pass the slowest queue, and above the time that another process
  // may keep a host or a software switch from its core: below that most resends are for nothing.
  Nanos least = 20 * kMillisecond;
  Nanos most = 100 * kMillisecond;
};

// The order in which blocks are sent for the first time: within groups of so many, from one of them
// on and around. Hosts' may differ, so that they do not all send the same block at once.
struct Stagger {
  // Else hosts wait for what none may send.
  static constexpr auto kMost = static_cast<uint32_t>(FlightLimit::kFirst);

  uint32_t blocks = 1;  // a power of two; 1: they are sent in their order
  uint32_t first = 0;   // below that

  // Where in the order the block is; wraps as blocks' numbers do.
  uint32_t place(uint32_t seq) const {
    const uint32_t in_group = blocks - 1;
    return (seq & ~in_group) | ((seq - first) & in_group);
  }
};

// A pure state machine, to which the time is given. Not thread-safe.
class Window {
 public:
  static constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

  // `size`: W, as the switch has it.
  Window(uint32_t size, uint32_t first_seq, const RetryTiming& timing, const Stagger& stagger = {});

  // From the first unfinished block to the last, there are fewer.
  static constexpr uint32_t kMaxUnfinished = uint32_t{1} << 31;

  // There are `count` blocks more to send. Returns the seq of the first one.
  uint32_t extend(uint32_t count);

  // The seq of a block to send now, for the first time; nothing if none may be.
  std::optional<uint32_t> take_new(Nanos now);
  // The seq of a block to send again now; nothing if none is due.
  std::optional<uint32_t> take_overdue(Nanos now);
  // When take_overdue() will have one, or earlier; kNever if nothing is in flight.
  Nanos next_due() const { return overdue_.empty() ? next_due_ : 0; }

  // The number of the contribution that is about to be sent, of a block that was just taken.
  uint16_t number_of(uint32_t seq);
  // Of a frame of any other type.
  uint16_t next_number() const { return sent_.next(); }
  // A frame has come from the switch: the numbers of those to ask for by kLost; mostly none.
  NumberRange lost_before(const FrameHeader& header);
  // kLost has come: what of that is in flight is overdue.
  void on_lost(const NumberRange& numbers, Nanos now);

  // A result has come: true if it is the block's first one and the block is in flight.
  bool on_result(uint32_t seq, Nanos now);
  void on_pending(uint32_t seq, Nanos now);

  // Blocks that are in flight, or are still to be sent.
  uint32_t unfinished() const { return unfinished_; }
  // Since when nothing has been heard while something was in flight; kNever if nothing is. Who asks
  // decides when the switch counts as dead.
  Nanos silent_since() const { return in_flight_ == 0 ? kNever : heard_; }
  uint64_t resent() const { return resent_; }
  // What may be in flight now.
  uint32_t limit() const { return limit_.blocks(); }

 private:
  struct Place {             // of the blocks that are the same modulo W, one after the other
    uint32_t seq = 0;        // in flight, or the next one
    int attempts = 0;        // how often it was sent; 0: it is not in flight
    bool waited = false;     // for another rank
    bool is_timed = false;   // when it was sent others had begun, too
    bool is_lost = false;    // says the switch
    bool is_listed = false;  // in overdue_
    uint16_t number = 0;     // of its last frame
    Nanos sent = 0;          // at first
    Nanos interval = 0;      // from the last time that it was sent to the next
    Nanos due = kNever;
  };

  Place& place_of(uint32_t seq) { return places_[seq % places_.size()]; }
  // The place of a block in flight; null if it is not.
  Place* in_flight(uint32_t seq);
  // The block that is next in a place may be sent, if it exists.
  void make_ready(const Place& place);
  // A block leaves ready_: the next, or that one, which is there.
  uint32_t take_next();
  uint32_t take_ready(uint32_t seq);
  // Whether the one comes after the other in the order of the stagger.
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
  // From a result that waited for nobody.
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
  uint32_t end_;     // of the blocks that there are
  uint32_t unfinished_ = 0;
  uint32_t in_flight_ = 0;
  bool is_flowing_ = false;  // since all was finished a result has come
  Nanos next_due_ = kNever;
  Nanos heard_ = 0;
  Nanos smoothed_ = 0;  // 0: not known yet
  Nanos variation_ = 0;
  Nanos backed_off_ = 0;  // the least timeout until the next round trip is known
  uint64_t resent_ = 0;
};

}  // namespace nezha::flare
