// SPDX-License-Identifier: Apache-2.0
#include "transport/scheduler.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "transport/trace.h"

namespace nezha {
namespace {

uint64_t round_up(uint64_t value, uint64_t granule) {
  return (value + granule - 1) / granule * granule;
}

}  // namespace

// ---- Links come and go -------------------------------------------------------------------------

void Scheduler::link_up(Rail rail, Link* link, double rate, const DeviceTraits& traits) {
  auto& place = queues_[static_cast<size_t>(rail)];
  if (place == nullptr) place = std::make_unique<Queue>();
  Queue& queue = *place;
  queue.link = link;
  if (rate <= 0) rate = traits.nominal_rate;
  queue.rate = rate > 0 ? RateEstimator(rate, false) : RateEstimator(kInitialRate);
  queue.least_segment = std::min(traits.least_segment, kMaxLeastSegment);
  queue.trust = 1;
  queue.lazy = Lazy();
  up_ |= rail_bit(rail);
  requeue(parked_);
}

void Scheduler::requeue(Queue& queue) {
  RecycledDeque<OutSegment*> segments;
  segments.swap(queue.segments);
  queued_ -= segments.size();
  queue.bytes = 0;
  for (OutSegment* segment : segments) enqueue(*segment, segment->allowed);
}

void Scheduler::avoid(Rail rail, bool is_avoided) {
  avoided_ = is_avoided ? avoided_ | rail_bit(rail) : avoided_ & ~rail_bit(rail);
  if (is_avoided && is_up(rail)) requeue(at(rail));
}

void Scheduler::link_down(Rail rail, std::deque<OutSegment*>& orphans) {
  Queue& queue = at(rail);
  const auto& unacked = queue.link->unacked();
  orphans.insert(orphans.end(), unacked.begin(), unacked.end());
  orphans.insert(orphans.end(), queue.segments.begin(), queue.segments.end());
  queued_ -= queue.segments.size();
  queue.segments.clear();
  queue.bytes = 0;
  queue.link = nullptr;
  queue.rate.reset_in_flight();
  up_ &= ~rail_bit(rail);
}

// ---- Shares ------------------------------------------------------------------------------------

// Rails that are not allowed carry a message only when none of the allowed ones is up.
RailMask Scheduler::usable(RailMask allowed) const {
  return preferred((up_ & allowed) != 0 ? up_ & allowed : up_);
}

// Returns the rails' rates. A rail's weight is the mean of the rates that are alike to its own.
Scheduler::Weights Scheduler::weights(RailMask rails, uint64_t length) const {
  double total = 0;
  for_each_rail(rails, [&](Rail rail) { total += rate(rail); });
  const double seconds = static_cast<double>(length) / total;
  const double alike = seconds * kSecond < kShort ? kAlikeIfShort : kAlike;
  Weights weights{};
  for_each_rail(rails, [&](Rail rail) {
    double sum = 0;
    int count = 0;
    for_each_rail(rails, [&](Rail other) {
      if (std::max(rate(rail), rate(other)) > alike * std::min(rate(rail), rate(other))) return;
      sum += rate(other);
      ++count;
    });
    weights[static_cast<size_t>(rail)] = sum / count;
  });
  return weights;
}

Rail Scheduler::fastest(RailMask rails) const {
  Rail best = kAnyRail;
  for_each_rail(rails, [&](Rail rail) {
    if (best == kAnyRail || rate(rail) > kAlikeIfShort * rate(best)) best = rail;
  });
  return best;
}

// Drops rails, the slowest first, while the slowest one's share of `length` is not worth a segment.
RailMask Scheduler::worth_using(RailMask rails, uint64_t length) const {
  while (std::popcount(rails) > 1) {
    double total = 0;
    Rail slowest = kAnyRail;
    for_each_rail(rails, [&](Rail rail) {
      total += rate(rail);
      if (slowest == kAnyRail || rate(rail) < rate(slowest)) slowest = rail;
    });
    const double part = static_cast<double>(length) * rate(slowest) / total;
    if (part >= static_cast<double>(kMinPart)) break;
    rails &= ~rail_bit(slowest);
  }
  return rails;
}

Rail Scheduler::whole(uint64_t length, uint64_t turn, RailMask allowed) const {
  const RailMask rails = usable(allowed);
  if (length > kMostWhole || std::popcount(rails) < 2) return kAnyRail;
  double best = 0;
  for_each_rail(rails, [&](Rail rail) { best = std::max(best, rate(rail)); });
  absl::InlinedVector<Rail, kMaxRails> in_turn;
  for_each_rail(rails, [&](Rail rail) {
    if (rate(rail) >= kTakesTurns * best) in_turn.push_back(rail);
  });
  return in_turn[turn % in_turn.size()];
}

// Returns the size in bytes of each segment of a part but the last.
size_t Scheduler::segment_size(Rail rail, size_t part, int segments_per_rail) const {
  return std::max(at(rail).least_segment, size_by_rate(rail, part, segments_per_rail));
}

size_t Scheduler::size_by_rate(Rail rail, size_t part, int segments_per_rail) const {
  const double by_time = rate(rail) * static_cast<double>(kSegmentTime) / kSecond;
  const size_t limit = std::clamp(static_cast<size_t>(by_time), 4 * kMinSegment, kLongSegment);
  // Segments of equal length would each end with a packet that is not full. So only the last one
  // does.
  if (part > kLongPart && limit >= kManyPackets * kPacket) return limit / kPacket * kPacket;
  const size_t wanted =
      part > kLongPart ? 1 : std::max<size_t>(1, static_cast<size_t>(segments_per_rail));
  const size_t affordable = std::max<size_t>(1, part / kMinSegment);
  const size_t count = std::max((part + limit - 1) / limit, std::min(wanted, affordable));
  return (part + count - 1) / count;
}

Scheduler::Cuts Scheduler::cut(uint64_t length, size_t granule, int segments_per_rail,
                               RailMask allowed) const {
  RailMask rails = usable(allowed);
  if (rails == 0) return {{0, length, kAnyRail}};
  if (length < kMinSpread) return {{0, length, fastest(rails)}};
  rails = worth_using(rails, length);
  const Weights weights = this->weights(rails, length);
  const double total_weight = std::accumulate(weights.begin(), weights.end(), 0.0);

  Cuts cuts;
  uint64_t offset = 0;
  double weight_so_far = 0;
  for_each_rail(rails, [&](Rail rail) {
    weight_so_far += weights[static_cast<size_t>(rail)];
    const double share = std::min(1.0, weight_so_far / total_weight);
    const bool last = (rails >> rail) == 1;
    const auto part_end =
        last ? length
             : std::min(length, round_up(static_cast<uint64_t>(static_cast<double>(length) * share),
                                         granule));
    if (part_end <= offset) return;
    const size_t size = round_up(segment_size(rail, part_end - offset, segments_per_rail), granule);
    // A rest that would not fill a packet, or is too short for a segment, goes with the last one.
    const uint64_t with_rest = size < kManyPackets * kPacket ? size : size + kPacket;
    const size_t least = at(rail).least_segment;
    const uint64_t last_size = least == 0 ? with_rest : std::max(with_rest, size + least - 1);
    for (; offset < part_end; offset = cuts.back().offset + cuts.back().length) {
      const uint64_t left = part_end - offset;
      cuts.push_back({offset, left <= last_size ? left : size, rail});
    }
  });
  return cuts;
}

// ---- Queues ------------------------------------------------------------------------------------

double Scheduler::backlog_seconds(const Queue& queue, uint64_t more) const {
  return static_cast<double>(queue.rate.in_flight() + queue.bytes + more) / queue.rate.rate();
}

Rail Scheduler::soonest(RailMask rails, uint64_t bytes) const {
  Rail best = kAnyRail;
  for_each_rail(rails, [&](Rail rail) {
    if (best == kAnyRail || backlog_seconds(at(rail), bytes) < backlog_seconds(at(best), bytes)) {
      best = rail;
    }
  });
  return best;
}

void Scheduler::enqueue(OutSegment& segment, RailMask allowed, bool at_front) {
  segment.allowed = allowed;
  segment.queued = true;
  if (segment.rail == kAnyRail || ((up_ & ~avoided_) & rail_bit(segment.rail)) == 0) {
    segment.rail = soonest(usable(allowed), segment.length);
  }
  Queue& queue = segment.rail == kAnyRail ? parked_ : at(segment.rail);
  queue.bytes += segment.length;
  ++queued_;
  if (at_front) {
    queue.segments.push_front(&segment);
  } else {
    queue.segments.push_back(&segment);
  }
}

void Scheduler::remove(OutSegment& segment) {
  Queue& queue = segment.rail == kAnyRail ? parked_ : at(segment.rail);
  const auto entry = std::find(queue.segments.begin(), queue.segments.end(), &segment);
  if (entry == queue.segments.end()) return;
  queue.bytes -= segment.length;
  queue.segments.erase(entry);
  --queued_;
  segment.queued = false;
}

// Returns the time that all rails together need for what all queues hold.
Nanos Scheduler::time_queued() const {
  uint64_t bytes = 0;
  double rate = 0;
  for_each_rail(up_, [&](Rail rail) {
    bytes += at(rail).bytes;
    rate += at(rail).rate.rate();
  });
  return static_cast<Nanos>(static_cast<double>(bytes) * kSecond / rate);
}

bool Scheduler::has_room(const Queue& queue, const OutSegment& next) const {
  const Nanos time =
      next.is_end ? std::clamp(time_queued(), kEndInFlightTime, kInFlightTime) : kInFlightTime;
  const double by_time = queue.rate.rate() * static_cast<double>(time) / kSecond;
  const uint64_t most = std::clamp(static_cast<uint64_t>(by_time), kMinInFlight, kMaxInFlight);
  if (queue.rate.in_flight() < most) return true;
  // The acknowledgements of data that the peer's machine has wait behind what the peer sends. If
  // only they counted, the peer would take the rail for itself: fewer bytes in flight, a lower
  // rate, and so even fewer bytes. A peer that has stopped acknowledging gets no more than before.
  const bool is_acknowledging = now() - queue.last_progress < kAcknowledging;
  return is_acknowledging && queue.rate.in_flight() < kMaxInFlight &&
         queue.link->undelivered() < most;
}

// A complete message will probably be answered soon, and the answer can carry the acknowledgement.
// A part of a message is usually followed by the next part.
bool Scheduler::is_lazy(const OutSegment& segment) {
  const bool is_whole = segment.length == segment.header.info.total;
  return segment.length < kAckNow || (is_whole && segment.length <= kMostWhole);
}

uint64_t Scheduler::most_lazy(const Queue& queue) const {
  const double by_time = queue.rate.rate() * static_cast<double>(kLazyTime) / kSecond;
  const auto bytes = std::max(static_cast<uint64_t>(by_time), kLeastLazy);
  return std::min(bytes, kMaxLazy / static_cast<uint64_t>(std::popcount(up_)));
}

void Scheduler::submit(Rail rail, OutSegment& segment) {
  Queue& queue = at(rail);
  segment.rail = rail;
  segment.queued = false;
  const uint64_t charge = wire::charge(segment.length);
  const bool is_due = queue.lazy.open() + charge > most_lazy(queue) ||
                      queue.lazy.in_a_row() + charge > kMaxLazyInARow;
  if (!is_lazy(segment) || (is_due && charge > 0)) {
    segment.flags |= wire::kFlagAckNow;
    queue.lazy.ask();
    const Nanos time = now();
    if (queue.rate.in_flight() == 0) queue.last_progress = time;
    queue.rate.submitted(segment.length, time);
  } else {
    queue.lazy.submitted(charge);
  }
  trace_step("submit {:x} {} {} {} {} {}", queue.link->id(), segment.header.number,
             segment.header.offset, segment.length, segment.header.attempt,
             segment.flags & wire::kFlagCharged);
  queue.link->submit(segment);
}

OutSegment* Scheduler::steal(Rail thief) {
  Rail victim = kAnyRail;
  double worst = 0;
  for_each_rail(up_ & ~rail_bit(thief), [&](Rail rail) {
    const Queue& queue = at(rail);
    if (queue.segments.empty()) return;
    const OutSegment& tail = *queue.segments.back();
    if ((usable(tail.allowed) & rail_bit(thief)) == 0 || !has_room(at(thief), tail)) return;
    const double gain = backlog_seconds(queue, 0) - backlog_seconds(at(thief), tail.length);
    if (gain > static_cast<double>(kStealMargin) / kSecond && gain > worst) {
      victim = rail;
      worst = gain;
    }
  });
  if (victim == kAnyRail) return nullptr;
  Queue& queue = at(victim);
  OutSegment* segment = queue.segments.back();
  queue.segments.pop_back();
  --queued_;
  queue.bytes -= segment->length;
  return segment;
}

void Scheduler::pump() {
  if (queued_ == 0) return;
  // The links take turns, since a link writes while it is given a segment, and the others must not
  // wait until one link has been given its whole queue.
  for (bool progress = true; progress;) {
    progress = false;
    for_each_rail(up_, [&](Rail rail) {
      Queue& queue = at(rail);
      if (queue.segments.empty() || !has_room(queue, *queue.segments.front())) return;
      OutSegment* segment = queue.segments.front();
      queue.segments.pop_front();
      --queued_;
      queue.bytes -= segment->length;
      submit(rail, *segment);
      progress = true;
    });
  }
  bool is_more = false;
  for_each_rail(up_, [&](Rail rail) { is_more |= !at(rail).segments.empty(); });
  if (!is_more) return;
  // Links steal only now: otherwise the first would take what the others are about to send.
  for_each_rail(up_, [&](Rail rail) {
    Queue& queue = at(rail);
    while (queue.segments.empty()) {
      OutSegment* segment = steal(rail);
      if (segment == nullptr) break;
      submit(rail, *segment);
    }
  });
}

void Scheduler::reconsider(Nanos time) {
  double best = 0;
  for_each_rail(up_, [&](Rail rail) { best = std::max(best, at(rail).rate.rate()); });
  for_each_rail(up_, [&](Rail rail) {
    Queue& queue = at(rail);
    if (queue.rate.in_flight() > 0 || time - queue.last_progress < kForgotten) return;
    queue.rate.hope(kHope * best);
    queue.last_progress = time;
  });
}

bool Scheduler::acknowledged(const OutSegment& segment) {
  Queue& queue = at(segment.rail);
  if (!segment.counted()) {
    queue.lazy.acknowledged(wire::charge(segment.length));
    return false;
  }
  queue.last_progress = now();
  return queue.rate.acknowledged(segment.length, queue.last_progress);
}

Nanos Scheduler::waiting_since(Rail rail) const {
  return at(rail).rate.in_flight() > 0 ? at(rail).last_progress : 0;
}

}  // namespace nezha
