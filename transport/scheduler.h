// SPDX-License-Identifier: Apache-2.0
// Which link takes which segment, and when: the policy of stripes.
//
// A message's own bytes are cut by the links' learned rates (shares). What is forwarded stays on
// the rail it came by (affinity), so that each rail is a closed loop around a ring and none waits
// for another. What is in flight on a link is limited by time, not bytes. A link that has nothing
// left takes work from the tail of another's queue if it will finish it clearly earlier (late
// stealing), which is what follows a rail whose rate changes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "common/recycled.h"
#include "transport/device.h"
#include "transport/link.h"
#include "transport/message.h"
#include "transport/rate.h"

namespace nezha {

class Scheduler {
 public:
  // A part of what is to be sent, and the rail it should take.
  struct Cut {
    uint64_t offset;
    size_t length;
    Rail rail;
  };
  using Cuts = absl::InlinedVector<Cut, 32, RecyclingAllocator<Cut>>;

  static constexpr double kInitialRate = 125e6;  // 1 Gbit/s, until something is known
  static constexpr double kMostGuessed = 500e6;
  // Of the fastest one's rate: rails that are slower would keep others waiting at their turn. With
  // two rails it pays from a half on, little at first; and what bursts show is up to a third off.
  static constexpr double kTakesTurns = 0.65;

  // Called under Progress's lock, as all of this class. `link` stays until link_down. `rate`: what
  // another link of the rail has learned, bytes per second; 0: none has. Then the device's nominal
  // rate is taken, or else it is guessed.
  void link_up(Rail rail, Link* link, double rate, const DeviceTraits& traits = {});
  // Takes the link's work back: what was not acknowledged, oldest first, then what was queued.
  void link_down(Rail rail, std::deque<OutSegment*>& orphans);

  RailMask up() const { return up_; }
  // Of a rail that has been up, as what follows.
  double rate(Rail rail) const { return at(rail).rate.rate() * at(rail).trust; }
  // Of a link as it was learned, whatever it is trusted with.
  double learned_rate(Rail rail) const { return at(rail).rate.rate(); }
  // The part of its learned rate that shares are computed with: a link that has come back gets
  // little at first. 1 after link_up.
  void set_trust(Rail rail, double trust) { at(rail).trust = trust; }

  // Whether the link has shown nothing of its rate yet, nor had another one of its rail when it
  // came up. If so, it may be guessed anew: beyond a limit messages that show nothing of it are
  // alike.
  bool is_guess(Rail rail) const { return at(rail).rate.is_guess(); }
  void guess(Rail rail, double rate) { at(rail).rate.guess(std::min(rate, kMostGuessed)); }

  // Whether something else is under way by the link, so that it is not to be judged by what takes
  // longer for that.
  void disturb(Rail rail, bool is_disturbed) { at(rail).rate.disturb(is_disturbed); }

  // Whether the rail gets work only where no other may have it. What is queued for it then goes to
  // others.
  void avoid(Rail rail, bool is_avoided);
  // Of the rails those that are not avoided, or all if there are no others.
  RailMask preferred(RailMask rails) const {
    return (rails & ~avoided_) != 0 ? rails & ~avoided_ : rails;
  }

  // The rail for all of a short message: one of those about as fast as the fastest, by turns, since
  // a message costs the processes less than its parts do. kAnyRail: it is to be cut.
  Rail whole(uint64_t length, uint64_t turn, RailMask allowed) const;

  // Cuts `length` bytes over the rails of `allowed` that are up, each part a multiple of
  // `granule` bytes but the last, at least `segments_per_rail` for each rail that gets enough for
  // that. With no rail up: one part on kAnyRail.
  Cuts cut(uint64_t length, size_t granule, int segments_per_rail, RailMask allowed) const;

  // Queues a segment for the rail it names, or for the best of `allowed`. At the front: what is
  // sent again, and announcements.
  void enqueue(OutSegment& segment, RailMask allowed, bool at_front = false);

  // Forgets a segment that is queued (not one that was submitted).
  void remove(OutSegment& segment);

  // Tells the link that has a segment of Link::withdraw.
  void withdraw(OutSegment& segment) { at(segment.rail).link->withdraw(segment); }

  // Submits what may be in flight now.
  void pump();

  // Called now and then: a link so slow that it has carried nothing for a while may be faster by
  // now. It gets so much that this will show.
  void reconsider(Nanos time);

  // An acknowledgement came. Whether the link's rate was learned anew.
  bool acknowledged(const OutSegment& segment);

  // Since when the oldest segment that is to be acknowledged at once makes no progress; 0: there
  // is none.
  Nanos waiting_since(Rail rail) const;

 private:
  using Weights = std::array<double, kMaxRails>;
  // Segments that are acknowledged with whatever goes back next; in bytes of charge.
  // Acknowledgements come in the order of the segments.
  class Lazy {
   public:
    void submitted(uint64_t charge) {
      open_ += charge;
      in_a_row_ += charge;
    }
    void acknowledged(uint64_t charge) {
      uint64_t& oldest = asked_for_ > 0 ? asked_for_ : open_;
      oldest -= charge;
    }
    // A segment follows that is acknowledged at once, and all before it with it.
    void ask() {
      asked_for_ += open_;
      open_ = in_a_row_ = 0;
    }
    // Not acknowledged, and nothing asks for it.
    uint64_t open() const { return open_; }
    // Submitted since something asked last, acknowledged or not.
    uint64_t in_a_row() const { return in_a_row_; }

   private:
    uint64_t open_ = 0;
    uint64_t asked_for_ = 0;
    uint64_t in_a_row_ = 0;
  };
  struct Queue {
    Link* link = nullptr;
    RateEstimator rate{kInitialRate};
    size_t least_segment = 0;  // bytes; see DeviceTraits
    double trust = 1;
    RecycledDeque<OutSegment*> segments;
    uint64_t bytes = 0;  // of `segments`
    Lazy lazy;
    Nanos last_progress = 0;
  };

  // Small enough for two a rail in the chunks of a small ring, large enough for few system calls.
  static constexpr size_t kMinSegment = 4 << 10;
  // A rail on which this is one segment is so fast that the system calls for two cost more than the
  // next hop would gain by having the first of them sooner.
  static constexpr size_t kLongPart = 64 << 10;
  // From here on, what a segment costs is mostly its packets.
  static constexpr size_t kManyPackets = 4;
  static constexpr size_t kMostWhole = 16 << 10;
  // Two of these are within what the wire allows; see `cut`.
  static constexpr size_t kMaxLeastSegment = 1 << 20;
  // A piece below this goes by one rail; a part below this is not worth a rail.
  static constexpr size_t kMinSpread = 8 << 10;
  static constexpr size_t kMinPart = 2 << 10;
  // Rails whose rates are less apart are taken for equal: that much is noise, and parts that differ
  // by noise cost more than equal ones of rails that do differ so much. What short messages tell of
  // rates is noisier.
  static constexpr double kAlike = 1.1;
  static constexpr double kAlikeIfShort = 1.25;
  static constexpr Nanos kShort = 2 * kMillisecond;
  static constexpr Nanos kSegmentTime = 500 * kMicrosecond;
  // What is in flight can no longer be stolen. Less than this, and a link runs dry whenever one of
  // the two processes is not scheduled for a moment.
  static constexpr Nanos kInFlightTime = 6 * kMillisecond;
  // Likewise at the end of messages. As the queues run empty, no more is in flight than is queued,
  // down to this: the rail that turns out to be faster takes what is left.
  static constexpr Nanos kEndInFlightTime = 2 * kMillisecond;
  static constexpr uint64_t kMinInFlight = 16 << 10;
  // More keeps no rail busier, and what lies in sockets for long leaves the caches.
  static constexpr uint64_t kMaxInFlight = 5 << 19;
  // Acknowledgements that wait behind the peer's data come within this time.
  static constexpr Nanos kAcknowledging = 25 * kMillisecond;
  static constexpr Nanos kStealMargin = kMillisecond;
  // Smaller segments, and messages that are no longer than kMostWhole, are acknowledged with
  // whatever goes back next.
  static constexpr size_t kAckNow = 4 << 10;
  static constexpr Nanos kForgotten = kSecond;
  static constexpr double kHope = 0.25;  // of the fastest link's rate
  // A frame that only acknowledges costs what a small message does, so it is to be rare. But what
  // goes ahead of a segment that is acknowledged at once delays that, and is not to be taken for a
  // rate that has fallen (RateEstimator).
  static constexpr Nanos kLazyTime = 200 * kMicrosecond;
  static constexpr uint64_t kLeastLazy = 8 << 10;
  // Over all rails, also where they came up one by one: half of what a pair may have retained, and
  // a little of its credit.
  static constexpr uint64_t kMaxLazy = 64 << 10;
  // Where all is acknowledged by what goes back anyway, rates are still to be learned.
  static constexpr uint64_t kMaxLazyInARow = 64 << 10;

  // Of a rail that has been up.
  Queue& at(Rail rail) { return *queues_[static_cast<size_t>(rail)]; }
  const Queue& at(Rail rail) const { return *queues_[static_cast<size_t>(rail)]; }
  bool is_up(Rail rail) const { return (up_ & rail_bit(rail)) != 0; }
  RailMask usable(RailMask allowed) const;
  Weights weights(RailMask rails, uint64_t length) const;
  Rail fastest(RailMask rails) const;
  Rail soonest(RailMask rails, uint64_t bytes) const;
  RailMask worth_using(RailMask rails, uint64_t length) const;
  size_t segment_size(Rail rail, size_t part, int segments_per_rail) const;
  size_t size_by_rate(Rail rail, size_t part, int segments_per_rail) const;
  bool has_room(const Queue& queue, const OutSegment& next) const;
  Nanos time_queued() const;
  static bool is_lazy(const OutSegment& segment);
  uint64_t most_lazy(const Queue& queue) const;
  double backlog_seconds(const Queue& queue, uint64_t more) const;
  void submit(Rail rail, OutSegment& segment);
  OutSegment* steal(Rail thief);
  void requeue(Queue& queue);

  // Null until the rail is up: a process may have a scheduler for each of thousands of peers, and a
  // queue takes most of a kilobyte though it is empty.
  std::array<std::unique_ptr<Queue>, kMaxRails> queues_;
  Queue parked_;       // for no rail is up
  size_t queued_ = 0;  // segments, in all queues
  RailMask up_ = 0;
  RailMask avoided_ = 0;
};

}  // namespace nezha
