#include "flare_offload/core/window.h"

#include <algorithm>
#include <cstdlib>

namespace nezha::flare {

Window::Window(uint32_t size, uint32_t first_seq, const RetryTiming& timing)
    : timing_(timing), places_(size), end_(first_seq) {
  for (uint32_t i = 0; i < size; ++i) place_of(first_seq + i).seq = first_seq + i;
}

uint32_t Window::extend(uint32_t count) {
  const uint32_t first = end_;
  end_ += count;
  unfinished_ += count;
  return first;
}

std::optional<uint32_t> Window::take_new(Nanos now) {
  Place* next = nullptr;
  uint32_t most_left = 0;  // blocks from it to the end: the lowest seq has the most
  for (Place& place : places_) {
    const uint32_t left = end_ - place.seq;  // modulo 2^32: of a block past the end, almost that
    if (place.attempts == 0 && left < kMaxUnfinished && left > most_left) {
      next = &place;
      most_left = left;
    }
  }
  if (next == nullptr) return {};
  if (in_flight_++ == 0) heard_ = now;
  next->sent = now;
  next->waited = false;
  next->interval = timeout();
  send(*next, now);
  return next->seq;
}

std::optional<uint32_t> Window::take_overdue(Nanos now) {
  if (now < next_due_) return {};
  next_due_ = kNever;
  Place* overdue = nullptr;
  for (Place& place : places_) {
    if (overdue == nullptr && place.due <= now) {
      overdue = &place;
    } else {
      next_due_ = std::min(next_due_, place.due);
    }
  }
  if (overdue == nullptr) return {};
  overdue->interval = std::min(2 * overdue->interval, timing_.most);
  send(*overdue, now);
  ++resent_;
  return overdue->seq;
}

bool Window::on_result(uint32_t seq, Nanos now) {
  Place* place = in_flight(seq);
  if (place == nullptr) return false;
  heard_ = now;
  if (!place->waited) learn(*place, now);
  place->seq += static_cast<uint32_t>(places_.size());
  place->attempts = 0;
  place->due = kNever;
  --in_flight_;
  --unfinished_;
  if (in_flight_ == 0) next_due_ = kNever;
  return true;
}

void Window::on_pending(uint32_t seq, Nanos now) {
  Place* place = in_flight(seq);
  if (place == nullptr) return;
  heard_ = now;
  place->waited = true;
  place->due = now + place->interval;
}

Window::Place* Window::in_flight(uint32_t seq) {
  Place& place = place_of(seq);
  return place.attempts > 0 && place.seq == seq ? &place : nullptr;
}

void Window::send(Place& place, Nanos now) {
  ++place.attempts;
  place.due = now + place.interval;
  next_due_ = std::min(next_due_, place.due);
}

Nanos Window::timeout() const {
  const Nanos learned = smoothed_ == 0 ? timing_.first : smoothed_ + 4 * variation_;
  return std::max(std::clamp(learned, timing_.least, timing_.most), backed_off_);
}

void Window::learn(const Place& place, Nanos now) {
  if (place.attempts > 1) {
    backed_off_ = std::max(backed_off_, place.interval);
    return;
  }
  backed_off_ = 0;
  const Nanos round_trip = now - place.sent;
  if (smoothed_ == 0) {
    smoothed_ = std::max<Nanos>(round_trip, 1);
    variation_ = round_trip / 2;
  } else {
    variation_ += (std::abs(smoothed_ - round_trip) - variation_) / 4;
    smoothed_ += (round_trip - smoothed_) / 8;
  }
}

}  // namespace nezha::flare
