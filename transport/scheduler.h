// SPDX-License-Identifier: Apache-2.0
// The scheduler decides which link takes which segment, and when.
//
// A message's own bytes are cut in proportion to the links' learned rates (shares), unless their
// sender names a rail. A forwarded segment stays on the rail that it came by (affinity), so that
// each rail is a closed loop around a ring and no rail waits for another. The amount in flight on a
// link is limited by time, not by bytes. A link that has nothing left to send takes segments from
// the tail of another link's queue if it would finish them clearly earlier (late stealing).
// Stealing is what adapts to a rail whose rate changes.
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
  // This is a part of the fastest rail's rate: slower rails would keep others waiting when it is
  // their turn. With two rails, taking turns pays from one half on, though little at first; and the
  // rates that bursts show are up to a third off.
  static constexpr double kTakesTurns = 0.65;

  // All functions of this class are called under Progress's lock. `link` stays until link_down.
  // `rate`: what another link of the rail has learned, bytes per second; 0: none has. Without it,
  // the device's nominal rate is taken, and without that a guess.
  void link_up(Rail rail, Link* link, double rate, const DeviceTraits& traits = {});
  // Takes the link's work back: what was not acknowledged, oldest first, then what was queued.
  void link_down(Rail rail, std::deque<OutSegment*>& orphans);

  RailMask up() const { return up_; }
  // Returns the rail's learned rate times its trust, bytes per second. The rail must have been up,
  // as for the functions that follow.
  double rate(Rail rail) const { return at(rail).rate.rate() * at(rail).trust; }
  // Returns the learned rate without the trust.
  double learned_rate(Rail rail) const { return at(rail).rate.rate(); }
  // Sets the part of its learned rate that shares are computed with: a link that has come back gets
  // little at first. It is 1 after link_up.
  void set_trust(Rail rail, double trust) { at(rail).trust = trust; }

  // Returns whether neither this link nor, before it came up, another link of its rail has shown
  // its rate. If so, the rate may be guessed anew. A guess has an upper limit, because above it,
  // messages that do not show the rate take the same time.
  bool is_guess(Rail rail) const { return at(rail).rate.is_guess(); }
  void guess(Rail rail, double rate) { at(rail).rate.guess(std::min(rate, kMostGuessed)); }

  // Says whether other traffic is under way on the link. Its rate is not judged meanwhile, since
  // everything takes longer.
  void disturb(Rail rail, bool is_disturbed) { at(rail).rate.disturb(is_disturbed); }

  // Says whether the rail is avoided: it gets work only if no other rail may have it, and what is
  // queued for it goes to others.
  void avoid(Rail rail, bool is_avoided);
  // Returns these rails without the avoided ones, or all of them if all are avoided.
  RailMask preferred(RailMask rails) const {
    return (rails & ~avoided_) != 0 ? rails & ~avoided_ : rails;
  }

  // Returns the rail for all of a short message. Rails about as fast as the fastest take turns,
  // since one message costs the processes less than its parts would. Returns kAnyRail if the
  // message is to be cut.
  Rail whole(uint64_t length, uint64_t turn, RailMask allowed) const;

  // Cuts `length` bytes over those rails of `allowed` that are up. Each part but the last is a
  // multiple of `granule` bytes. A rail's part becomes at least `segments_per_rail` segments,
  // unless it is too short for that or longer than kLongPart. If no rail is up, there is one part
  // on kAnyRail.
  Cuts cut(uint64_t length, size_t granule, int segments_per_rail, RailMask allowed) const;

  // Queues a segment for the rail that it names, or for the best of `allowed`. Segments that are
  // sent again, and announcements, go to the front.
  void enqueue(OutSegment& segment, RailMask allowed, bool at_front = false);

  // Forgets a segment that is queued (not one that was submitted).
  void remove(OutSegment& segment);

  // Withdraws the segment from the link that has it; see Link::withdraw.
  void withdraw(OutSegment& segment) { at(segment.rail).link->withdraw(segment); }

  // Submits the segments that may be in flight now.
  void pump();

  // Callers call this now and then. A slow link that has carried nothing for a while may be faster
  // by now, so its estimate is raised until its traffic shows the rate.
  void reconsider(Nanos time);

  // A segment was acknowledged. Returns whether the link's rate was learned anew.
  bool acknowledged(const OutSegment& segment);

  // Returns since when the segments that are to be acknowledged at once have made no progress; 0 if
  // there are none.
  Nanos waiting_since(Rail rail) const;

 private:
  using Weights = std::array<double, kMaxRails>;
  // Counts the segments that are acknowledged with the next frame that goes back anyway, in bytes
  // of charge. Acknowledgements come in the order of the segments.
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
    // The next segment is acknowledged at once, and all before it with it.
    void ask() {
      asked_for_ += open_;
      open_ = in_a_row_ = 0;
    }
    // Returns the charge of segments that are not acknowledged and that no later segment asks for.
    uint64_t open() const { return open_; }
    // Returns the charge submitted since a segment last asked, acknowledged or not.
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
    uint64_t bytes = 0;  // the bytes of `segments`
    Lazy lazy;
    Nanos last_progress = 0;
  };

  // Small enough for two a rail in the chunks of a small ring, large enough for few system calls.
  static constexpr size_t kMinSegment = 4 << 10;
  // A rail that takes this in one segment is so fast that the system calls for a second one cost
  // more than the next hop would gain by having the first sooner.
  static constexpr size_t kLongPart = 64 << 10;
  // From this many packets on, the cost of a segment is mostly that of its packets.
  static constexpr size_t kManyPackets = 4;
  static constexpr size_t kMostWhole = 16 << 10;
  // Two of these are within what the wire allows; see `cut`.
  static constexpr size_t kMaxLeastSegment = 1 << 20;
  // A piece below this goes by one rail; a part below this is not worth a rail.
  static constexpr size_t kMinSpread = 8 << 10;
  static constexpr size_t kMinPart = 2 << 10;
  // Rails whose rates differ by less than this factor are taken for equal. So small a difference is
  // mostly noise, and parts that differ by noise cost more than equal parts on rails that do differ
  // so much. Short messages show rates with more noise.
  static constexpr double kAlike = 1.1;
  static constexpr double kAlikeIfShort = 1.25;
  static constexpr Nanos kShort = 2 * kMillisecond;
  static constexpr Nanos kSegmentTime = 500 * kMicrosecond;
  // What is in flight can no longer be stolen. With less than this in flight, a link runs dry
  // whenever one of the two processes is not scheduled for a moment.
  static constexpr Nanos kInFlightTime = 6 * kMillisecond;
  // The limit at the end of messages. As the queues run empty, no more is in flight than is queued,
  // down to this, so that the rail that turns out to be faster takes what is left.
  static constexpr Nanos kEndInFlightTime = 2 * kMillisecond;
  static constexpr uint64_t kMinInFlight = 16 << 10;
  // More does not keep a rail busier, and data that stays in sockets for long leaves the caches.
  static constexpr uint64_t kMaxInFlight = 5 << 19;
  // Acknowledgements that wait behind the peer's data come within this time.
  static constexpr Nanos kAcknowledging = 25 * kMillisecond;
  static constexpr Nanos kStealMargin = kMillisecond;
  // Shorter segments, and whole messages of at most kMostWhole, are acknowledged with the next
  // frame that goes back.
  static constexpr size_t kAckNow = 4 << 10;
  static constexpr Nanos kForgotten = kSecond;
  static constexpr double kHope = 0.25;  // a part of the fastest link's rate
  // A frame that only acknowledges costs as much as a small message, so it is to be rare. But bytes
  // ahead of a segment that is acknowledged at once delay its acknowledgement, and the delay must
  // not be taken for a rate that has fallen (RateEstimator).
  static constexpr Nanos kLazyTime = 200 * kMicrosecond;
  static constexpr uint64_t kLeastLazy = 8 << 10;
  // The limit is for all rails together. Even where they came up one by one, this comes to half of
  // what a pair may have retained, and to a little of its credit.
  static constexpr uint64_t kMaxLazy = 64 << 10;
  // Rates must still be learned where all acknowledgements come with frames that go back anyway.
  static constexpr uint64_t kMaxLazyInARow = 64 << 10;

  // Returns the rail's queue. The rail must have been up.
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

  // Null until the rail is first up: a process may have a scheduler for each of thousands of peers,
  // and even an empty queue takes most of a kilobyte.
  std::array<std::unique_ptr<Queue>, kMaxRails> queues_;
  Queue parked_;       // segments for which no rail is up
  size_t queued_ = 0;  // segments, in all queues
  RailMask up_ = 0;
  RailMask avoided_ = 0;
};

}  // namespace nezha
